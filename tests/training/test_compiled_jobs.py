"""Compiled jobs as ranks live them: the same bits on other worlds, through faults and checkpoints, and nothing compiled in later steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.training.link import Broken
from tests.compilers import COMPILE_TIMEOUT_SECONDS, needs_compiler
from tests.faults import Fault, faulty_job
from tests.gangs import Job
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from tests.training.test_reproducible import run, uneven_gpt

pytestmark = [needs_compiler, pytest.mark.timeout(4 * COMPILE_TIMEOUT_SECONDS)]

COMPILED = {"compile": True}
#: As in `tests/parallelism/test_compiled.py`, and twice as many steps.
RELATIVE = 1e-4
#: Added to a copy of the task that breaks where it is told: each process writes down when it compiles, which step it is in, and when it has compiled ahead.
WITNESS = """
from torch._dynamo.callback import on_compile_start

from paceline.training import trainer


@on_compile_start
def witness(_: object) -> None:
    note("witness", "compiles")


def watched(spec: JobSpec) -> Task:
    made = gpt(spec)

    def loss(model: nn.Module, batch: Batch) -> Loss:
        note("witness", made.train._progress.step)
        return made.loss(model, batch)

    return replace(made, loss=loss)


def ahead(*arguments: object, compile_ahead: Callable[..., None] = trainer.compile_ahead) -> None:
    compile_ahead(*arguments)
    note("witness", "ready")


trainer.compile_ahead = ahead
"""


def watched(folder: Path, *faults: Fault) -> dict[str, Any]:
    spec = faulty_job(folder, *faults, task="watched", **COMPILED)
    spec["training"] |= {"global_batch_size": 11}  # six micro-batches, the last one of one sample
    with (folder / "faulty_task.py").open("a") as code:
        code.write(WITNESS)
    return spec


def witnessed(folder: Path, pid: int) -> list[str]:
    notes = [line.split() for line in (folder / "witness").read_text().splitlines()]
    return [word for process, word in notes if int(process) == pid]


@pytest.fixture
def make_job(make_job: MakeJob) -> MakeJob:
    """Whose ranks may take their time."""

    def make(spec: dict[str, Any], name: str = "job") -> Job:
        job = make_job(spec, name)
        job.patience = COMPILE_TIMEOUT_SECONDS
        return job

    return make


def test_one_to_three_ranks_give_the_same_bits(make_job: MakeJob) -> None:
    digests = {run(make_job(uneven_gpt() | COMPILED, f"world{size}"), size) for size in (1, 2, 3)}
    assert len(digests) == 1


def test_survivors_compile_nothing_again_and_lose_no_bit(make_job: MakeJob, tmp_path: Path) -> None:
    """The first of two has had no smaller last micro-batch until the other one dies."""
    (undisturbed,) = make_job(watched(tmp_path / "well"), "well").run(1)
    gang = make_job(watched(tmp_path / "code", Fault(rank=1, step=5, moment="backward"))).start(2)
    gang.agent.until(1, 0, Broken)
    gang.close_up(0)
    survivor, dead = gang.wait()
    assert (survivor.exit_code, dead.exit_code) == (0, -9), gang.left(2, 0).output
    assert survivor.curve("loss") | gang.left(2, 0).curve("loss") == undisturbed.curve("loss")
    words = witnessed(tmp_path / "code", gang.pids()[0])
    assert "compiles" in words
    assert "compiles" not in words[words.index("2") :]  # from the second step on


@pytest.mark.slow("torch.compile writes and compiles C++ on each rank")
@pytest.mark.parametrize(("strategy", "compiled_first"), [("ddp", True), ("fsdp", False)])
def test_checkpoints_do_not_know_who_compiled(make_job: MakeJob, strategy: str, compiled_first: bool) -> None:
    """Without dropout, whose random numbers are other ones."""
    spec = tiny_gpt(2, steps=40, dropout=0.0) | {"parallelism": {"strategy": strategy}}
    straight = make_job(spec, "straight").run(2)[0]
    job = make_job(spec | {"compile": compiled_first})
    paused = job.run(2, pause=True)[0]
    job.spec |= {"compile": not compiled_first}
    ended = job.resume(2)[0]
    assert (paused.exit_code, ended.exit_code) == (0, 0), paused.output + ended.output
    curve: dict[int, Any] = paused.curve("loss") | ended.curve("loss")
    assert len(paused.curve("loss")) in range(1, 40)
    assert curve == pytest.approx(straight.curve("loss"), rel=RELATIVE)


def test_stages_compile_everything_ahead(make_job: MakeJob, tmp_path: Path) -> None:
    """Also for the last micro-batch, of one sample."""
    gang = make_job(watched(tmp_path) | {"parallelism": {"pipeline": 2}}).start(2)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output
    seen = [witnessed(tmp_path, pid) for pid in gang.pids()]
    assert any(words[: words.index("ready")].count("compiles") >= 2 for words in seen)
    assert all("compiles" not in words[words.index("ready") :] for words in seen)
