"""The checkpoints that may be deleted: all but the newest few, the best few, and those that a job depends on. A checkpoint that was
reported too late to go on from is kept as well until the job has come as far again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.cluster.states import CheckpointState
from paceline.training.schema.checkpoint import CheckpointPolicy


@dataclass(frozen=True)
class CheckpointView:
    id: str
    step: int
    generation: int
    state: CheckpointState
    metrics: dict[str, float]
    pinned: bool = False
    referenced: bool = False  # a job that has not ended was started from it


def verified(checkpoints: Sequence[CheckpointView]) -> list[CheckpointView]:
    """The checkpoints that can be restored, the newest first: by step, and of one step the later generation's."""
    usable = (checkpoint for checkpoint in checkpoints if checkpoint.state is CheckpointState.COMMITTED)
    return sorted(usable, key=_age, reverse=True)


def best(checkpoints: Sequence[CheckpointView], policy: CheckpointPolicy) -> list[CheckpointView]:
    """The restorable checkpoints that have measured the policy's metric (NaN is no measurement), the best first; ties: the newest."""
    sign = 1.0 if policy.mode == "min" else -1.0
    measured = [checkpoint for checkpoint in verified(checkpoints) if _is_number(checkpoint.metrics.get(policy.metric))]
    return sorted(measured, key=lambda checkpoint: sign * checkpoint.metrics[policy.metric])


def to_delete(checkpoints: Sequence[CheckpointView], policy: CheckpointPolicy, not_finite_step: int | None = None) -> list[CheckpointView]:
    """The checkpoints that retention deletes now, the oldest first. A damaged one goes as soon as a newer one can be restored.
    `not_finite_step`: the first step whose loss was not finite; the last checkpoint from before it stays, whatever the policy."""
    usable = verified(checkpoints)
    newest = usable[0] if usable else None
    kept = {each.id for each in [*usable[: policy.keep_last], *best(checkpoints, policy)[: policy.keep_best]]}
    kept |= {each.id for each in _saved_while_finite(usable, not_finite_step)[:1]}
    kept |= {each.id for each in _ahead(checkpoints, newest)[: policy.keep_last]}
    return sorted((each for each in checkpoints if each.id not in kept and _expendable(each, newest)), key=_age)


def _ahead(checkpoints: Sequence[CheckpointView], newest: CheckpointView | None) -> list[CheckpointView]:
    """Superseded checkpoints of steps that the job has not saved again, the newest first."""
    superseded = (each for each in checkpoints if each.state is CheckpointState.SUPERSEDED)
    return sorted((each for each in superseded if newest is None or each.step > newest.step), key=_age, reverse=True)


def _saved_while_finite(usable: Sequence[CheckpointView], not_finite_step: int | None) -> list[CheckpointView]:
    """The checkpoints from before the update that made the loss of `not_finite_step` not finite, the newest first."""
    return [] if not_finite_step is None else [each for each in usable if each.step < not_finite_step - 1]


def to_delete_next(
    checkpoints: Sequence[CheckpointView], policy: CheckpointPolicy, not_finite_step: int | None = None
) -> list[CheckpointView]:
    """The checkpoints that retention would delete when one more is saved that is not the best."""
    usable = verified(checkpoints)
    if not usable:
        return []
    following = replace(usable[0], id="", step=usable[0].step + 1, metrics={}, pinned=False, referenced=False)
    return to_delete([*checkpoints, following], policy, not_finite_step)


def _expendable(checkpoint: CheckpointView, newest: CheckpointView | None) -> bool:
    if checkpoint.pinned or checkpoint.referenced:
        return False
    if checkpoint.state is CheckpointState.SUPERSEDED:
        return True
    if newest is None:
        return False
    if checkpoint.state is CheckpointState.DAMAGED:
        return _age(checkpoint) < _age(newest)
    return checkpoint.state is CheckpointState.COMMITTED


def _age(checkpoint: CheckpointView) -> tuple[int, int]:
    return (checkpoint.step, checkpoint.generation)


def _is_number(value: float | None) -> bool:
    return isinstance(value, int | float) and value == value
