"""How far off the cost model is: on every plan that is measured here, and on published scaling tables.

Measured are real steps of one process, replicas, shards, tensor parallelism and pipelines on one and two ranks, of several models and batches. Half of
the plans, drawn at random, fits the model and the other half is told by it, and the other way round, for several such draws.

    python -m scripts.bench.experiment_costs [--quick] [--only PART ...] [--json FILE] [--steps FILE]

`--steps FILE` keeps what was measured of each plan, or takes it from there: a change of the model is judged by the same steps.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from paceline.parallelism.model_shape import NumberFormats
from paceline.parallelism.planning.cost.fit import ToldStep, leave_half_out
from paceline.parallelism.planning.cost.parameters import MeasuredPlan
from paceline.parallelism.planning.cost.published import published
from paceline.parallelism.planning.cost.speeds import of_cpu_slots
from paceline.training.planning.estimates import setup_of
from paceline.training.spec.derived import known_shape
from scripts.bench.costs.trials import BATCHES, MODELS, MeasuredTrial, keep, measure, read, trials
from scripts.bench.figures import Figure, report, summarize
from scripts.scaling_tables.pages import explanation
from scripts.scaling_tables.predictions import ComparedStep, compare_all
from scripts.steps import say

ROUNDS, QUICK_ROUNDS = 20, 4
DRAWS = 4
MEDIAN_GOAL, WORST_GOAL, PUBLISHED_GOAL = 0.10, 0.25, 0.15

Part = Callable[[], list[Figure]]


def measured_here(rounds: int, models: Sequence[str], batches: Sequence[int], kept: Path | None) -> list[Figure]:
    found = read(kept) if kept and kept.exists() else measure(trials(models, batches), rounds)
    if kept and not kept.exists():
        keep(found, kept)
    plans = [plan_of(each) for each in found]
    start = of_cpu_slots({plan.setup.precision for plan in plans})
    draws = [leave_half_out(plans, start, seed) for seed in range(DRAWS)]
    return [cost_model_error(found, draws)]


def plan_of(measured: MeasuredTrial) -> MeasuredPlan:
    spec = measured.trial.spec
    shape = known_shape(spec, NumberFormats(spec.precision))
    if shape is None:
        raise ValueError(f"the shape of {measured.trial.name} is unknown")
    return MeasuredPlan(shape, setup_of(spec), measured.seconds)


def cost_model_error(found: Sequence[MeasuredTrial], draws: Sequence[Sequence[ToldStep]]) -> Figure:
    """Summarize the errors of plans that were told; a plan's error is the median over the draws."""
    errors = [statistics.median(abs(draw[index].error) for draw in draws) for index in range(len(found))]
    worst = max(range(len(found)), key=errors.__getitem__)
    noise = statistics.median(each.spread - 1 for each in found)
    reference = (
        f"|told / measured - 1| of {len(found)} plans, fitted on half of them, told for the other half, {len(draws)} draws; goal: median {MEDIAN_GOAL}, worst "
        f"{WORST_GOAL}; worst here {errors[worst]:.3f}: {found[worst].trial.name} ({1000 * found[worst].seconds:.0f} ms); the faster half of a plan's own rounds "
        f"spreads over {noise:.0%}"
    )
    return summarize("cost_model_error", "ratio", errors, reference)


def published_tables() -> list[Figure]:
    return [published_tables_error(compare_all(published()))]


def published_tables_error(compared: Sequence[ComparedStep]) -> Figure:
    counted = [each for each in compared if not each.row.calibrates]
    worst = max(counted, key=lambda each: abs(each.error))
    by_source = "; ".join(
        f"{source.name} {statistics.median(abs(each.error) for each in group):.3f}"
        for source, group in ((source, list(each)) for source, each in groupby(counted, key=lambda each: each.row.source))
    )
    reference = (
        f"|predicted / published - 1| of {len(counted)} published rows, from stated hardware; goal: median {PUBLISHED_GOAL}; {by_source}; worst {worst.error:+.3f}: "
        f"{worst.row.source.name}, {worst.row.row}: {explanation(worst.row)}"
    )
    return summarize("published_tables_error", "ratio", [abs(each.error) for each in counted], reference)


def parts(*, quick: bool, kept: Path | None = None) -> dict[str, Part]:
    here = (QUICK_ROUNDS, ("usual", "small"), BATCHES) if quick else (ROUNDS, tuple(MODELS), BATCHES)
    return {"here": partial(measured_here, *here, kept), "published": published_tables}


def main() -> None:
    names = list(parts(quick=True))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help=f"two models instead of {len(MODELS)}, {QUICK_ROUNDS} rounds instead of {ROUNDS}"
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART", help=f"of {', '.join(names)}")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--steps", type=Path, metavar="FILE", help="take the measured steps from this file, or write them there if it is new"
    )
    arguments = parser.parse_args()
    figures = []
    for name, part in parts(quick=arguments.quick, kept=arguments.steps).items():
        if name in arguments.only:
            say(name)
            figures += part()
    report(figures, arguments.json)


if __name__ == "__main__":
    main()
