"""The steps at which the trials of a halving pause and are compared. Pure."""

from __future__ import annotations

from paceline.cluster.experiments.spec import ExperimentSpec, Halving
from paceline.training.spec.changes import field_at


def rung_steps(spec: ExperimentSpec) -> tuple[int, ...]:
    """Return the steps at which the trials of a halving are compared, the last of all included. Raises ValueError where there are none."""
    assert spec.halving is not None
    total = field_at(spec.job, ("training", "steps"))
    if isinstance(total, bool) or not isinstance(total, int | float) or total != int(total):
        raise ValueError("halving compares trials after the same number of steps, and the job does not give training.steps")
    return (*ladder(spec.halving, int(total)), int(total))


def ladder(halving: Halving, total_steps: int) -> tuple[int, ...]:
    """Return the steps at which trials pause. The end of training is the last rung, and has `factor` times the steps of the one before, or
    more. Raises ValueError where there is no rung before the end."""
    if total_steps < halving.factor:
        raise ValueError(f"training.steps={total_steps} is less than halving.factor={halving.factor}: train longer, or leave halving out")
    most = total_steps // halving.factor
    if halving.min_steps > most:
        raise ValueError(
            f"halving.min_steps={halving.min_steps} leaves no rung before the end of {total_steps} steps: at factor={halving.factor} use "
            f"min_steps={most} or less, or leave halving out"
        )
    steps = [halving.min_steps]
    while steps[-1] * halving.factor <= most:
        steps.append(steps[-1] * halving.factor)
    return tuple(steps)
