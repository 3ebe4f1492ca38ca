"""Each way a rank can end, told in one report that names the right culprit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest
import torch

from paceline.cluster.agent.ranks.rank_link import LINE_LIMIT_BYTES
from paceline.distributed.errors import StoreRefusedError
from paceline.training.link import Broken, FailureReport
from paceline.training.reporting.failure_kinds import MAX_MESSAGE_CHARACTERS, MAX_TRACEBACK_CHARACTERS
from paceline.training.reporting.failures import describe, describe_script, kind_of
from tests.gangs import RankEnd
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from tests.waiting import wait_until

STEPPING_TIMEOUT_SECONDS = 30.0

USER_CODE = """
import torch
from paceline.training.task import Task

class Numbers:
    def __len__(self):
        return 64

    def batch(self, indices, generator):
        return (indices.float()[:, None],)

def loss(model, batch):
    if {condition}:
        raise KeyError("my own bug")
    return model(batch[0]).square().mean(), {{}}

def task(spec):
    return Task(model=torch.nn.Linear(1, 1), train=Numbers(), loss=loss)

def not_a_task(spec):
    return 7
"""


def entrypoint_spec(folder: Path, entrypoint: str, nodes: int = 1) -> dict[str, object]:
    training = {"steps": 4, "global_batch_size": 4, "eval_every_steps": None}
    return {
        "name": "mine",
        "resources": {"nodes": nodes},
        "entrypoint": entrypoint,
        "training": training,
        "fault_tolerance": {"recovery": "restart"},  # nobody is there to order survivors into a new generation
        "environment": {"working_directory": str(folder)},
    }


def failure(end: RankEnd) -> FailureReport:
    assert end.exit_code == 1
    assert end.result is not None
    assert end.result.outcome == "failed"
    assert end.result.failure is not None
    return end.result.failure


def test_a_users_entrypoint_trains(make_job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "my_training.py").write_text(USER_CODE.format(condition="False"))
    first, second = make_job(entrypoint_spec(tmp_path, "my_training:task", nodes=2)).run(2)
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    assert sorted(first.curve("loss")) == [1, 2, 3, 4]


def test_an_exception_in_user_code_blames_its_rank_and_the_others_only_lost_a_peer(make_job: MakeJob, tmp_path: Path) -> None:
    condition = "torch.distributed.get_rank() == 1 and batch[0].numel() and model.training"
    (tmp_path / "my_training.py").write_text(USER_CODE.format(condition=condition))
    first, second = make_job(entrypoint_spec(tmp_path, "my_training:task", nodes=2)).run(2)
    assert failure(first).kind == "peer_lost"
    cause = failure(second)
    assert (cause.kind, cause.exception, cause.rank) == ("exception", "KeyError", 1)
    assert "my own bug" in cause.message
    assert "my_training.py" in cause.traceback
    assert "my own bug" in second.output


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [("absent:task", "no module 'absent'"), ("my_training:absent", "has no 'absent'"), ("my_training:not_a_task", "returned int")],
)
def test_an_entrypoint_that_is_none_is_the_users_to_mend(make_job: MakeJob, tmp_path: Path, entrypoint: str, message: str) -> None:
    (tmp_path / "my_training.py").write_text(USER_CODE.format(condition="False"))
    (end,) = make_job(entrypoint_spec(tmp_path, entrypoint)).run()
    assert failure(end).kind == "invalid_input"
    assert message in failure(end).message
    assert "Traceback" not in end.output


def test_an_import_within_an_entrypoint_is_the_users_to_mend_and_shown_with_its_line(make_job: MakeJob, tmp_path: Path) -> None:
    """It was an exception, and worth three restarts."""
    code = USER_CODE.format(condition="False").replace("def task(spec):", "def task(spec):\n    import flash_attention_9000")
    (tmp_path / "my_training.py").write_text(code)
    (end,) = make_job(entrypoint_spec(tmp_path, "my_training:task")).run()
    assert (failure(end).kind, failure(end).message) == ("invalid_input", "No module named 'flash_attention_9000'")
    assert failure(end).where.startswith("task in my_training.py:")
    assert "Traceback" in end.output


def test_missing_data_says_what_to_do(make_job: MakeJob) -> None:
    spec = tiny_gpt() | {"model": {"kind": "resnet", "depth": 8}, "data": {"kind": "cifar10", "path": "/nonexistent"}}
    (end,) = make_job(spec).run()
    assert failure(end).kind == "invalid_input"
    assert "cifar-10-python.tar.gz" in failure(end).message


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_killed_peer_is_noticed_at_once_and_a_killed_rank_makes_no_noise(make_job: MakeJob, name: str) -> None:
    gang = make_job(tiny_gpt(2, steps=100_000)).start(2)
    metrics = gang.folders[1].metrics
    wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, "a first step", seconds=STEPPING_TIMEOUT_SECONDS)
    first = metrics.stat().st_size
    wait_until(lambda: metrics.stat().st_size > first, "another step", seconds=STEPPING_TIMEOUT_SECONDS)
    pid = gang.processes[1].pid
    assert pid is not None
    os.kill(pid, signal.Signals[name])
    survivor, killed = gang.wait()
    assert failure(survivor).kind == "peer_lost"
    assert failure(survivor).step > 0
    assert killed.exit_code == -signal.Signals[name]
    assert killed.result is None
    assert "Traceback" not in killed.output


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "out_of_memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"), "out_of_memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "out_of_memory"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1"), "peer_lost"),
        (StoreRefusedError("stale generation 1"), "peer_lost"),
        (RuntimeError("shape mismatch"), "exception"),
        (ValueError("Connection closed by peer"), "exception"),
        (SystemExit(3), "exit"),
        (ModuleNotFoundError("No module named 'flash_attention_9000'"), "invalid_input"),
    ],
)
def test_kinds(error: BaseException, kind: str) -> None:
    assert kind_of(error, 2) == kind


@pytest.mark.parametrize(("status", "code"), [(3, 3), (None, 0), (-1, 255), ("why", 1)])
def test_sys_exit_decides_the_exit_code(status: int | str | None, code: int) -> None:
    report = describe(SystemExit(status), rank=0, step=0, world_size=4)
    assert (report.exit_code, report.kind) == (code, "exit")
    assert report.message == ("why" if status == "why" else f"sys.exit with code {code} before it had finished")


def test_a_message_that_is_no_text_or_endless_still_makes_a_report() -> None:
    report = describe(ValueError("bad \udcff \0 name"), rank=0, step=0, world_size=4)
    assert report.message == "bad \\udcff \ufffd name"
    assert msgspec.json.encode(report)
    long = describe(ValueError("x" * 5_000_000), rank=0, step=0, world_size=4)
    assert len(long.message) <= MAX_MESSAGE_CHARACTERS + 2
    assert len(long.traceback) <= MAX_TRACEBACK_CHARACTERS + 100
    assert long.traceback.startswith("ValueError: xxx")
    assert long.traceback.endswith("xxx\n")
    assert "(4984013 characters left out)" in long.traceback


def test_the_worst_traceback_of_control_characters_fits_into_a_line_of_the_link() -> None:
    said = Broken(step=1, failure=describe(ValueError("\x01" * 5_000_000), rank=0, step=0, world_size=4))
    assert len(msgspec.json.encode(said)) < LINE_LIMIT_BYTES / 4


def load() -> None:
    raise ValueError("a")


def collate() -> None:
    raise TypeError("b")


def test_an_exception_group_names_its_members_and_the_line_of_the_first() -> None:
    members: list[Exception] = []
    for work in (load, collate):
        try:
            work()
        except (ValueError, TypeError) as error:
            members.append(error)
    report = describe(ExceptionGroup("many", members), rank=0, step=0, world_size=4)
    assert report.message == "many (2 sub-exceptions): ValueError: a; TypeError: b"
    assert report.where.startswith("load in test_failures.py:")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "report", [describe_script(Unspeakable(), rank=2, world_size=4), describe(Unspeakable(), rank=2, step=7, world_size=4)]
)
def test_an_error_whose_text_raises_is_reported_as_itself(report: FailureReport) -> None:
    assert (report.kind, report.exception) == ("exception", f"{__name__}.Unspeakable")
    assert report.message == "<exception str() failed>"


def test_an_error_without_words_is_named() -> None:
    assert describe(AssertionError(), rank=2, step=7, world_size=4).message == "AssertionError"
