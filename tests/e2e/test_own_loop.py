"""A loop of one's own as a submitted job: its losses are the job's curves, and a killed rank costs what was not saved."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import ROOT, Stack, wait_until
from tests.own_loop_example import run_plainly

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

RELATIVE = 1e-5
SHORT, LONG = 20, 1500
SAVE_EVERY = 100
#: Rounding grows from step to step: later losses are the same run, but not to the last digits.
ABSOLUTE_LATE = 0.1


def losses_of_one_process(steps: int) -> dict[int, float]:
    """The losses of one process that has as many images in a batch as two ranks have together."""
    return {step: loss for step, (loss, _) in run_plainly("--batch-size", "64", "--steps", str(steps)).items()}


def own_loop(name: str, *arguments: str) -> dict[str, Any]:
    return {
        "name": name,
        "resources": {"nodes": 2},
        "script": {"path": "own_loop.py", "args": ["--batch-size", "32", *arguments]},
        "environment": {"working_directory": str(ROOT / "examples")},
        "fault_tolerance": {"max_restarts": 2},
    }


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_submitted_loop_has_the_losses_of_one_process(stack: Stack, strategy: str) -> None:
    job_id = stack.submit(own_loop(f"own-{strategy}", "--strategy", strategy, "--steps", str(SHORT)))
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert done["state"] == "completed", done
    assert stack.wait_for_step(job_id, SHORT) == SHORT  # which is written five times a second at most
    assert dict(stack.raw_curve(job_id)) == pytest.approx(losses_of_one_process(SHORT), rel=RELATIVE)
    assert [step for step, _ in stack.raw_curve(job_id, "samples_per_second")] == list(range(1, SHORT + 1))


def test_a_killed_rank_costs_what_was_not_saved(stack: Stack, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    arguments = ("--steps", str(LONG), "--save-every", str(SAVE_EVERY), "--checkpoint-dir", str(checkpoints))
    job_id = stack.submit(own_loop("own-killed", *arguments))
    wait_until("a checkpoint", lambda: any(checkpoints.glob("step-*.g1/manifest.json")), 90)
    os.kill(stack.job(job_id)["ranks"][1]["pid"], signal.SIGKILL)
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=200)
    assert (done["state"], done["generation"]) == ("completed", 2), done
    before, after = saved_by(checkpoints, 1), saved_by(checkpoints, 2)
    assert before + after == list(range(SAVE_EVERY, LONG + 1, SAVE_EVERY)), "it did not go on from the newest checkpoint"
    assert done["progress"]["saved_file"]["path"] == str(checkpoints / f"step-{LONG}.g2"), "outside of the working directory"
    curve = dict(stack.raw_curve(job_id))
    assert sorted(curve) == list(range(1, LONG + 1))
    assert curve[LONG] == pytest.approx(losses_of_one_process(LONG)[LONG], abs=ABSOLUTE_LATE)


def saved_by(checkpoints: Path, generation: int) -> list[int]:
    """Steps."""
    return sorted(int(folder.name[5:].split(".")[0]) for folder in checkpoints.glob(f"step-*.g{generation}"))
