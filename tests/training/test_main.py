"""The entry of a rank."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec

from paceline.cluster.agent.spawner.rank_process import _trainer_command
from paceline.monitoring.artifacts import RankArtifact
from paceline.training import main
from paceline.training.link import RankOrder, Result, encode_order
from paceline.training.main import run_rank
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.own_loop_example import environment
from tests.ranks import make_world
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

RUN_TIMEOUT_SECONDS = 100

TASK = """
import threading
import numpy as np
import paceline
import torch
from paceline.monitoring.media_recorder import MediaRecorder
from paceline.training.task import Task

class Numbers:
    def __len__(self):
        return 8
    def batch(self, indices, generator):
        return (indices.float()[:, None],)

def loss(model, batch):
    return model(batch[0]).square().mean(), {}

def with_a_thread(spec):
    threading.Thread(target=threading.Event().wait).start()
    return Task(torch.nn.Linear(1, 1), Numbers(), loss)

ending, write, close = threading.Event(), MediaRecorder._write, MediaRecorder.close

def write_at_the_end(recorder, logged):
    ending.wait()
    write(recorder, logged)

def begin_the_end(recorder):
    ending.set()
    close(recorder)

def drawing(model, batch):
    paceline.log(1, picture=paceline.Image(np.zeros((4, 5))))
    return loss(model, batch)

def on_a_slow_disk(spec):
    MediaRecorder._write, MediaRecorder.close = write_at_the_end, begin_the_end
    return Task(torch.nn.Linear(1, 1), Numbers(), drawing)
"""


def own_job(folder: Path, function: str) -> dict[str, Any]:
    folder.mkdir()
    (folder / "own_task.py").write_text(TASK)
    return {
        "name": "own",
        "entrypoint": f"own_task:{function}",
        "environment": {"working_directory": str(folder)},
        "training": {"steps": 1, "global_batch_size": 4, "micro_batch_size": 4, "eval_every_steps": None},
        "checkpoint": {"every_steps": None},
    }


def test_a_rank_with_a_spec_of_another_version_ends_with_the_reason(tmp_path: Path) -> None:
    spec = StoredSpec(tiny_gpt(steps=1) | {"from_tomorrow": 1})
    order = RankOrder(spec=spec, world=make_world(0, 1, 0, tmp_path), folder=str(tmp_path), agent_socket=str(tmp_path / "socket"))
    assert run_rank(order) == 1
    result = msgspec.json.decode(RankFolder.at(tmp_path).result.read_bytes(), type=Result)
    assert (result.outcome, result.failure and result.failure.kind) == ("failed", "invalid_input")
    assert result.failure is not None
    assert "`from_tomorrow` is not a field of a job spec" in result.failure.message


def test_what_a_rank_logged_last_is_there_though_its_process_ends_without_clean_up(make_job: MakeJob, tmp_path: Path) -> None:
    """Images of the last steps were lost where they waited for their turn."""
    job = make_job(own_job(tmp_path / "code", "on_a_slow_disk"))
    (end,) = job.run()
    assert end.exit_code == 0, end.output
    notes = [msgspec.json.decode(note.read_bytes(), type=RankArtifact) for note in job.folder.rglob("*.note")]
    assert [note.media.key for note in notes if note.media] == ["picture"]


def test_a_rank_in_an_interpreter_of_its_own_ends_as_a_forked_one_does(tmp_path: Path) -> None:
    """It waited for threads of the user's code, and ended in the middle of gloo's work, which kills a process (SIGABRT)."""
    folder = RankFolder(tmp_path, "job", 1, 0)
    folder.path.mkdir(parents=True)
    order = RankOrder(
        spec=StoredSpec(own_job(tmp_path / "code", "with_a_thread")),
        world=make_world(0, 1, 0, tmp_path / "checkpoints"),
        folder=str(folder.path),
        agent_socket=str(tmp_path / "socket"),
    )
    done = subprocess.run(
        _trainer_command(main, order),  # type: ignore[arg-type]  # a module
        input=encode_order(order),
        cwd=tmp_path / "code",
        env=environment(PACELINE_RANK_FOLDER=str(folder.path)),
        capture_output=True,
        timeout=RUN_TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert msgspec.json.decode(folder.result.read_bytes(), type=Result).outcome == "completed"
