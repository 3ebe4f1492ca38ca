"""Same run, to the last bit, through random kills, stops, pauses and resizes. PACELINE_TEST_FAULTS makes it longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import faulty_job, states
from tests.training.conftest import MakeJob
from tests.training.random_faults import ALONE, Possible, RandomFaults

FAULTS = int(os.environ.get("PACELINE_TEST_FAULTS", "20"))
SECONDS_A_FAULT = 30  # on a machine that is busy with other things
FAST_STEPS = 50
EVERYTHING = Possible(kinds=("kill", "kill", "kill", "stop", "resize", "resize", "pause"))
FAST = Possible(kinds=("kill", "stop", "resize"), moments=ALONE)


@pytest.mark.slow("two whole jobs, one of them with many faults")
@pytest.mark.timeout(120 + FAULTS * SECONDS_A_FAULT)
@pytest.mark.parametrize(("task", "seed"), [("gpt", 6), ("task", 7)], ids=["dropout", "batch norm"])
def test_the_run_is_the_same_to_the_last_bit(make_job: MakeJob, tmp_path: Path, task: str, seed: int) -> None:
    steps = 40 + 3 * FAULTS  # two or so for each event, and time for pauses to arrive
    well, code = tmp_path / "well", tmp_path / "code"
    undisturbed = make_job(faulty_job(well, nodes=1, steps=steps, task=task), name="well").run(1)[0]
    faults = RandomFaults(make_job(faulty_job(code, steps=steps, task=task)), code, seed, FAULTS, EVERYTHING)
    losses = faults.run()
    assert len(faults.lived_through) == FAULTS
    assert {event.kind for event in faults.lived_through} == {"kill", "stop", "resize", "pause"}
    assert losses == undisturbed.curve("loss")
    assert states(code) == states(well)  # parameters and running statistics after every step, on every rank


@pytest.mark.timeout(600)
def test_the_fast_mode_stays_within_rounding(make_job: MakeJob, tmp_path: Path) -> None:
    well, code = tmp_path / "well", tmp_path / "code"
    undisturbed = make_job(faulty_job(well, nodes=1, steps=FAST_STEPS, task="gpt"), name="well").run(1)[0]
    job = make_job(faulty_job(code, steps=FAST_STEPS, task="gpt", reproducible=False))
    faults = RandomFaults(job, code, seed=1, count=6, possible=FAST)
    losses = faults.run()
    assert sorted(losses) == list(range(1, FAST_STEPS + 1))
    assert losses == pytest.approx(undisturbed.curve("loss"), abs=1e-4)
