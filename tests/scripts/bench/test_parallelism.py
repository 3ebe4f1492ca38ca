"""What the benchmark of parallelism makes of what it found, and that all its loops run."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench.parallel import async_save, stored_save
from scripts.bench.parallel.contests import CONTESTS, compete, figures
from scripts.bench.parallel.memory import GOAL, error, plans
from scripts.bench.parallel.plans import Size, Tried, describe, try_all
from scripts.bench.parallel.workload import RANKS
from tests.object_store import object_store
from tests.ranks import run_ranks

TIMEOUT_SECONDS = 150.0
TINY = Size({"layers": 2, "dim": 32, "heads": 2, "context": 16}, batch=4)
pytestmark = pytest.mark.timeout(160)


def test_more_than_one_is_faster_than_bare() -> None:
    rounds = [{"ours": 1.0, "ddp_vs_bare": 1.1, "alone": 0.9}, {"ours": 1.0, "ddp_vs_bare": 1.3, "alone": 0.8}]
    versus, scaling = figures("ddp", CONTESTS["ddp"], rounds)
    assert (versus.figure, versus.median, versus.n) == ("ddp_vs_bare", pytest.approx(1.2), 2)
    assert (scaling.figure, scaling.median) == ("ddp_scaling", pytest.approx(0.85))  # as a part of two processes by themselves
    assert "DDP 0.71" in scaling.reference


@pytest.mark.parametrize("name", CONTESTS)
def test_every_loop_of_a_contest_runs(name: str, tmp_path: Path) -> None:
    (round_,), _ = run_ranks(compete, RANKS, name, 1, tmp_path, timeout=TIMEOUT_SECONDS)
    assert set(round_) == {"ours", "alone", *CONTESTS[name].rivals}
    assert min(round_.values()) > 0


def test_plans_are_tried_beside_the_chosen_one() -> None:
    tried, other = run_ranks(try_all, RANKS, TINY, 1, timeout=TIMEOUT_SECONDS)
    assert tried.plans > 1
    assert len(tried.ratios) == 2
    assert (tried.best, tried.chosen) == (other.best, other.chosen)


def test_words_for_a_choice() -> None:
    assert describe(Tried("a", "a", 3, [1.0, 1.0])) == "a is the best of 3 plans that fit"
    assert describe(Tried("a", "b", 3, [0.9, 1.0])) == "b is 0.950 of a of 3 plans that fit"


def test_an_estimate_is_held_to_what_steps_take() -> None:
    assert abs(error(plans()["single"])) < GOAL


def test_saves_of_both_kinds_are_compared_round_by_round() -> None:
    def run(stall: float, seconds: float) -> async_save.Run:
        return async_save.Run([{"bytes": 10**6, "stall_seconds": stall, "slowdown": 1.5, "write_seconds": 0.2}], seconds)

    found = async_save.figures([(run(0.01, 4.0), run(0.5, 5.0)), (run(0.02, 8.0), run(0.7, 8.8))])
    medians = {figure.figure: figure.median for figure in found}
    assert medians == pytest.approx(
        {
            "async_save_stall_ms": 15,
            "save_stall_ms": 600,
            "async_save_slowdown": 1.5,
            "async_save_write_seconds": 0.2,
            "async_save_vs_waiting": 1.175,
        }
    )


def test_saves_to_a_store_stand_beside_the_disk_and_a_scripts_own() -> None:
    def run(stall: float) -> async_save.Run:
        return async_save.Run([{"bytes": 10**6, "stall_seconds": stall, "slowdown": 1.5, "write_seconds": 0.2}], 4.0)

    found = stored_save.figures([stored_save.StoredRound(run(0.02), run(0.01), run(0.5), script_seconds=0.7)])
    assert {figure.figure: figure.median for figure in found} == pytest.approx(
        {"s3_checkpoint_stall_ms": 20, "s3_checkpoint_write_seconds": 0.2, "s3_checkpoint_slowdown": 1.5}
    )
    assert found[0].reference == "1 MB by 2 ranks; on the node's disk 10, training waits 500, torch.save and boto3 700"


@pytest.mark.release
def test_a_run_saves_to_a_store() -> None:
    with object_store() as store:
        (round_,) = stored_save.rounds(store.target, 1)
        assert [name for name in store.names("round-0/stored/") if name.endswith("manifest.json")]
    assert len(round_.stored.saves) == len(round_.local.saves) == async_save.SAVES - 1
    assert round_.script_seconds > 0
