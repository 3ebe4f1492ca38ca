"""Pipelines train as one process does: losses, gradient norms over 20 steps, an evaluation and the parameters after them."""

from __future__ import annotations

import pytest

from parallelism.pipeline_step import BoundaryMismatchError
from tests.parallelism.pipelines import Case, Run, require_equal, trained_all
from tests.ranks import run_ranks

BOUND = 1e-5
RANKS_SECONDS = 110.0

SCHEDULES = [
    Case("gpipe"),
    Case("1f1b"),
    Case("interleaved_1f1b", chunks=2),
    Case("zero_bubble"),
    Case("zero_bubble", chunks=2),
    Case("zero_bubble_v", chunks=2),
]


def runs_of(ranks: int, *cases: Case) -> list[list[Run]]:
    """By case, of every rank."""
    by_rank = run_ranks(trained_all, ranks, cases, timeout=RANKS_SECONDS)
    return [list(runs) for runs in zip(*by_rank, strict=True)]


@pytest.mark.parametrize("case", SCHEDULES, ids=lambda case: f"{case.schedule}-{case.chunks}")
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_schedule_trains_as_one_process(case: Case, ranks: int) -> None:
    """A GPT with dropout and tied embeddings: on its first and last stage."""
    (runs,) = runs_of(ranks, case)
    require_equal(case, runs, BOUND)


@pytest.mark.parametrize("case", SCHEDULES, ids=lambda case: f"{case.schedule}-{case.chunks}")
def test_pipelines_beside_each_other_add_up(case: Case) -> None:
    """2 x 2: two pipelines of two ranks, one flat sum for each stage."""
    case = Case(case.schedule, case.chunks, replicas=2)
    (runs,) = runs_of(4, case)
    require_equal(case, runs, BOUND)
