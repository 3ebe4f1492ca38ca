"""Programs as people have them, unchanged: under torchrun and here they print the same losses, also where a rank is killed in between."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from paceline.training.rank_folder import RankFolder
from tests.e2e.lost_steps import assert_unknown
from tests.e2e.stack import Stack, wait_until
from tests.e2e.torchrun import PROGRAMS, losses, under_torchrun

JOB_SECONDS = 90.0
CURVE_SECONDS = 15.0
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

#: So long does each step take in the run in which a rank is killed.
PAUSE_SECONDS = "0.1"
KILLED_AFTER_STEP = 9
#: The one that says what it has loaded. The steps of the others are read from what they print, or from files, which tell no place to go on from.
TELLS_ITS_STEPS = "own_trainer.py"
#: (file, arguments that slow it down, whether it goes on from what it has saved)
ALWAYS = [
    pytest.param("ddp_tutorial.py", ["--pause", PAUSE_SECONDS], True, id="DDP with a sampler"),
    pytest.param("fsdp2.py", [PAUSE_SECONDS], True, id="FSDP2 with distributed checkpoints"),
    pytest.param("digits_project/main.py", [PAUSE_SECONDS], False, id="a project with a package called training"),
    pytest.param("accelerate_loop.py", [PAUSE_SECONDS], True, id="Accelerate"),
]
FURTHER = [
    pytest.param("accelerate_accumulating.py", [PAUSE_SECONDS], True, id="Accelerate with accumulation", marks=pytest.mark.release),
    pytest.param("own_trainer.py", [PAUSE_SECONDS], True, id="paceline.Trainer", marks=pytest.mark.release),
    pytest.param("fabric_loop.py", [PAUSE_SECONDS], True, id="Fabric", marks=pytest.mark.release),
    pytest.param("lightning_trainer.py", [PAUSE_SECONDS], True, id="Lightning's Trainer", marks=pytest.mark.release),
    pytest.param("transformers_trainer.py", [PAUSE_SECONDS], True, id="the Trainer of transformers", marks=pytest.mark.release),
    pytest.param("gan.py", [PAUSE_SECONDS], False, id="GAN with two optimizers", marks=pytest.mark.release),
    pytest.param("loader_workers.py", [PAUSE_SECONDS], False, id="workers that load", marks=pytest.mark.release),
    pytest.param("forks.py", [PAUSE_SECONDS], False, id="forks and other programs", marks=pytest.mark.release),
]


def has_curve(stack: Stack, job_id: str, expected: dict[int, str]) -> None:
    """Look for the losses that the program printed in the curve on its page. Some libraries count from 1, event files hold single precision, and
    Lightning is asked to log each fourth step."""
    last = float(expected[max(expected)].split()[1])

    def reaches_the_end() -> list[tuple[int, float]] | None:
        found = stack.raw_curve(job_id)
        return found if len(found) >= len(expected) // 4 and found[-1][0] >= max(expected) else None

    assert wait_until("the loss on its page", reaches_the_end, CURVE_SECONDS)[-1][1] == pytest.approx(last, rel=1e-6, abs=1e-8)


def submit(stack: Stack, program: Path, folder: Path, arguments: list[str]) -> str:
    folder.mkdir()
    spec = {
        "name": "program",
        "script": {"path": str(program), "args": arguments},
        "resources": {"nodes": 2},
        "environment": {"working_directory": str(folder)},
        "fault_tolerance": {"max_restarts": 2},
    }
    return stack.submit(spec)


def printed(stack: Stack, job_id: str) -> dict[int, str]:
    return losses("\n".join(line["text"] for line in stack.get(f"/training/jobs/{job_id}/logs", limit=1000)["items"]))


def kill_rank_1(stack: Stack, job_id: str) -> None:
    """A step or two after KILLED_AFTER_STEP: by what rank 0 has written, since its lines are at the coordinator some time later."""

    def has_come_so_far() -> bool:
        outputs = [RankFolder.at(each).output for each in stack.data.glob(f"agents/*/jobs/{job_id}/g1/rank0")]
        return any(KILLED_AFTER_STEP in losses(output.read_text()) for output in outputs if output.exists())

    wait_until(f"step {KILLED_AFTER_STEP}", has_come_so_far, JOB_SECONDS)
    victim: dict[str, Any] = next(rank for rank in stack.job(job_id)["ranks"] if rank["rank"] == 1)
    os.kill(victim["pid"], signal.SIGKILL)


def tells_what_was_repeated(stack: Stack, job_id: str, incident: dict[str, Any], name: str, steps_again: list[int]) -> None:
    """Look into the incident of a kill for the steps that were done twice. `steps_again`: what the next generation printed, from 0."""
    if name != TELLS_ITS_STEPS:
        assert_unknown(stack, job_id, incident)
        return
    resumed, lost = steps_again[0], incident["step"] - steps_again[0]
    repeated = f"{lost} step{'' if lost == 1 else 's'} had to be repeated" if lost else "no step was lost"
    assert incident["step"] > KILLED_AFTER_STEP
    assert (incident["resumed_step"], incident["steps_lost"]) == (resumed, lost), incident
    assert incident["done"] == f"all ranks restarted as generation 2 from step {resumed}; {repeated}"


@pytest.mark.parametrize(("name", "slowly", "saves"), ALWAYS + FURTHER)
def test_it_trains_as_under_torchrun_and_again_after_a_kill(
    stack: Stack, tmp_path: Path, name: str, slowly: list[str], saves: bool
) -> None:
    shutil.copytree(PROGRAMS, tmp_path / "code")
    program = tmp_path / "code" / name
    expected = under_torchrun(program, tmp_path / "torchrun")
    assert len(expected) >= 2 * KILLED_AFTER_STEP

    undisturbed = submit(stack, program, tmp_path / "undisturbed", [])
    done = stack.wait_for_state(undisturbed, "completed", "failed", timeout=JOB_SECONDS)
    assert done["state"] == "completed", done["failure"]
    assert printed(stack, undisturbed) == expected
    has_curve(stack, undisturbed, expected)

    killed = submit(stack, program, tmp_path / "killed", slowly)
    kill_rank_1(stack, killed)
    done = stack.wait_for_state(killed, "completed", "failed", timeout=JOB_SECONDS)
    assert (done["state"], done["generation"], done["restarts"]) == ("completed", 2, 1), done["failure"]
    assert printed(stack, killed) == expected
    (incident,) = stack.get(f"/training/jobs/{killed}/incidents")
    culprit = incident["culprit"]
    assert (culprit["rank"], culprit["kind"], incident["outcome"]) == (1, "signal", "recovered"), incident
    again = stack.get(f"/training/jobs/{killed}/logs", limit=1000)["items"]
    assert sum(line["text"].startswith("step 0 ") for line in again) == (1 if saves else 2)
    steps_again = losses("\n".join(line["text"] for line in again if line["generation"] == 2))
    tells_what_was_repeated(stack, killed, incident, name, list(steps_again))
    if saves:
        saved = wait_until("its newest checkpoint is seen", lambda: stack.job(killed)["progress"]["saved_file"], CURVE_SECONDS)
        assert Path(saved["path"]).is_relative_to(tmp_path / "killed")
        assert (Path(saved["path"]).name == "snapshot.pt") == (name == "ddp_tutorial.py")


def test_lightning_that_takes_the_devices_of_one_machine_is_refused_on_two_as_under_torchrun(stack: Stack, tmp_path: Path) -> None:
    """Rank 0 trained alone to the end: without torchrun's variables Lightning took the job for one of a single process."""
    job_id = submit(stack, PROGRAMS / "lightning_all_devices.py", tmp_path / "work", [])
    failure = stack.wait_for_state(job_id, "completed", "failed", timeout=JOB_SECONDS)["failure"]
    assert failure["exception"] == "ValueError"
    assert (
        "You set `devices=1` and `num_nodes=1` in Lightning, but the product (1 * 1) does not match the world size (2)"
        in failure["message"]
    )


def test_lightning_that_counts_all_ranks_as_devices_of_one_node_trains_on_two_machines_as_under_torchrun(
    stack: Stack, tmp_path: Path
) -> None:
    """Lightning compares the product alone with the number of ranks, and takes the place of each from torchrun's variables."""
    program = PROGRAMS / "lightning_all_devices.py"
    expected = under_torchrun(program, tmp_path / "torchrun", "2", "1")
    assert len(expected) == 4
    for devices, nodes in (("2", "1"), ("1", "2")):
        job_id = submit(stack, program, tmp_path / f"{devices}x{nodes}", [devices, nodes])
        done = stack.wait_for_state(job_id, "completed", "failed", timeout=JOB_SECONDS)
        assert done["state"] == "completed", done["failure"]
        assert printed(stack, job_id) == expected


def test_its_event_files_are_its_curves(stack: Stack, tmp_path: Path) -> None:
    """The names of others are ours where they mean the same, and histograms are left out."""
    job_id = submit(stack, PROGRAMS / "event_files.py", tmp_path / "work", ["40"])
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=JOB_SECONDS)
    assert done["state"] == "completed", done["failure"]
    curve = wait_until("all of its curve", lambda: len(found := stack.raw_curve(job_id)) == 40 and found, CURVE_SECONDS)
    assert {step: f"loss {value:.6g}" for step, value in curve} == printed(stack, job_id)  # type: ignore[attr-defined]
