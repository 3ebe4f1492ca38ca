"""Data for real training, through real ranks: token files, streams, and micro-batches computed ahead."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paceline.training.link import Broken
from paceline.training.saving import manifest as manifests
from tests.gangs import Job, RankEnd
from tests.training.conftest import MakeJob
from tests.training.data.token_sets import make
from tests.training.specs import tiny_gpt
from tests.training.test_reproducible import digest, run

pytestmark = pytest.mark.timeout(400)  # on a machine that is busy with other things
STEPS = 12

SOURCE = '''
"""A stream of numbers that writes down which of them each process used in which step, and a slow table."""
import itertools, os, pathlib, signal, threading
import torch
from paceline.training.task import Task

FOLDER = pathlib.Path(__file__).parent
SLOW_SECONDS = 0.1

class Numbers:
    """Shard s has 7 + s samples; sample n of it is s * 1000 + n. Nobody is told how many."""
    shards = 9

    def samples(self, shard):
        return None

    def read(self, shard, start):
        return iter(range(shard * 1000 + start, shard * 1000 + 7 + shard))

    def batch(self, samples, generator):
        numbers = torch.tensor(samples)
        return numbers, numbers[:, None] / 1000 + 0.01 * torch.randn(len(samples), 4, generator=generator)

class Slow:
    """Waits for each micro-batch, as a distant disk would make it."""
    def __len__(self):
        return 64

    def batch(self, indices, generator):
        threading.Event().wait(SLOW_SECONDS)
        return indices, torch.randn(len(indices), 4, generator=generator)

def loss(model, batch):
    numbers, inputs = batch
    with open(FOLDER / "used", "a") as file:
        file.write(" ".join(map(str, numbers.tolist())) + "\\n")
    return model(inputs).square().mean(), {}

calls = itertools.count(1)

def deadly(model, batch):
    """Rank 1 of the first generation dies in its fifth step."""
    if os.environ["PACELINE_RANK_FOLDER"].endswith("g1/rank1") and next(calls) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return loss(model, batch)

def dying(spec):
    return Task(model=torch.nn.Linear(4, 1), train=Numbers(), loss=deadly)

def stream(spec):
    return Task(model=torch.nn.Linear(4, 1), train=Numbers(), loss=loss)

def slow(spec):
    work = torch.nn.Sequential(torch.nn.Linear(4, 1), Busy())
    return Task(model=work, train=Slow(), loss=loss)

class Busy(torch.nn.Module):
    """A forward pass that takes as long as the data do."""
    def forward(self, inputs):
        threading.Event().wait(SLOW_SECONDS)
        return inputs

def once(spec):
    return Task(model=torch.nn.Linear(4, 1), train=(number for number in range(10)), loss=loss)
'''


def entrypoint_job(folder: Path, task: str, steps: int = STEPS, **training: Any) -> dict[str, Any]:
    """Three micro-batches a step, of 3, 3 and 2 samples."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data_task.py").write_text(SOURCE)
    length = {"steps": steps, "global_batch_size": 8, "micro_batch_size": 3, "eval_every_steps": None}
    return {
        "name": "stream",
        "entrypoint": f"data_task:{task}",
        "environment": {"working_directory": str(folder)},
        "training": length | training,
        "checkpoint": {"every_steps": None},
        "fault_tolerance": {"recovery": "restart"},
    }


def used(folder: Path) -> Counter[int]:
    return Counter(int(number) for line in (folder / "used").read_text().splitlines() for number in line.split())


def succeed(job: Job, world_size: int) -> RankEnd:
    ends = job.run(world_size)
    assert [end.exit_code for end in ends] == [0] * world_size, ends[0].output
    return ends[0]


def outcome(job: Job, leaders: list[RankEnd]) -> tuple[Any, ...]:
    """Every loss, by step, and the parameters at the end."""
    losses = [(step, loss.hex()) for end in leaders for step, loss in end.curve("loss").items()]
    return *losses, manifests.read(Path(job.newest_first()[0])).parameters_sha256


@pytest.fixture(scope="module")
def token_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of the standard library as tokens."""
    import email

    folder = tmp_path_factory.mktemp("tokens")
    make(folder / "out", [Path(email.__file__).parent], match="*.py", portion_bytes=100_000)
    return folder / "out"


def tokens_job(folder: Path, steps: int = STEPS, **training: Any) -> dict[str, Any]:
    spec = tiny_gpt(steps=steps, generate_tokens=5, **training)
    model = spec["model"] | {"vocab_size": 260}
    return spec | {"model": model, "data": {"kind": "tokens", "path": str(folder), "holdout": 0.3}}


def test_token_files_train_a_gpt_to_the_same_bits_on_any_world_and_with_workers(make_job: MakeJob, token_files: Path) -> None:
    digests = {
        run(make_job(tokens_job(token_files, data_workers=workers), f"{size}.{workers}"), size)
        for size, workers in ((1, 0), (2, 0), (2, 2))
    }
    assert len(digests) == 1


def test_a_paused_run_on_token_files_goes_on_in_the_middle_of_an_epoch(make_job: MakeJob, token_files: Path) -> None:
    spec = tokens_job(token_files, steps=60, data_workers=1)
    straight, paused = make_job(spec, "straight"), make_job(spec, "paused")
    leaders = [paused.run(2, pause=True)[0], paused.resume(1)[0]]
    assert run(straight, 1) == digest(paused, leaders)
    (sample,) = leaders[-1].events_of("sample")
    assert sample["text"].startswith("\n")  # a document begins where another has ended


def test_a_node_without_the_token_files_says_so(make_job: MakeJob, tmp_path: Path) -> None:
    (end,) = make_job(tokens_job(tmp_path / "nowhere")).run()
    assert end.result is not None
    assert end.result.failure is not None
    assert end.result.failure.kind == "invalid_input"
    assert "is no token set on this machine" in end.result.failure.message


def test_a_stream_is_used_to_the_same_bits_and_exactly_once_on_any_world(make_job: MakeJob, tmp_path: Path) -> None:
    """On one rank; on three; paused twice, on two, then three, then one, with workers."""
    alone, three, moved = (tmp_path / name for name in ("alone", "three", "moved"))
    jobs = {folder: make_job(entrypoint_job(folder, "stream", steps=60), folder.name) for folder in (alone, three)}
    jobs[moved] = make_job(entrypoint_job(moved, "stream", steps=60, data_workers=2), moved.name)
    outcomes = {outcome(jobs[alone], [succeed(jobs[alone], 1)]), outcome(jobs[three], [succeed(jobs[three], 3)])}
    generations = [jobs[moved].run(2, pause=True), jobs[moved].resume(3, pause=True), jobs[moved].resume(1)]
    outcomes.add(outcome(jobs[moved], [ends[0] for ends in generations]))
    assert len(outcomes) == 1
    assert used(alone) == used(three) == used(moved)
    assert sum(used(alone).values()) == 60 * 8


def test_survivors_of_a_rank_that_worked_ahead_go_on_to_the_same_bits(make_job: MakeJob, tmp_path: Path) -> None:
    """What was computed ahead for the old deal is dropped; lanes change hands, and a newcomer finds its place in one."""
    well, code = tmp_path / "well", tmp_path / "code"
    undisturbed = make_job(entrypoint_job(well, "stream", steps=30), "well")
    spec = entrypoint_job(code, "dying", steps=30, data_workers=2)
    job = make_job(spec | {"resources": {"nodes": 3}, "fault_tolerance": {"recovery": "close_up"}})
    gang = job.start(3)
    for rank in (0, 2):
        gang.agent.until(1, rank, Broken)
    gang.close_up(0, 2, newcomers=1)
    assert [end.exit_code for end in gang.wait()] == [0, -9, 0, 0]
    assert outcome(job, [gang.left(1, 0), gang.left(2, 0)]) == outcome(undisturbed, [succeed(undisturbed, 1)])
    assert used(code) == used(well)


def test_a_pass_of_a_stream_uses_each_sample_exactly_once(make_job: MakeJob, tmp_path: Path) -> None:
    """Nine shards of 7 to 15 samples in three lanes: after eight steps no lane has come to its end, nor used anything twice."""
    steps = 8
    succeed(make_job(entrypoint_job(tmp_path, "stream", steps=steps)), 2)
    assert set(used(tmp_path).values()) == {1}
    assert sum(used(tmp_path).values()) == 8 * steps


def test_epochs_of_a_stream_and_what_cannot_be_read_twice_are_the_users_mistakes(make_job: MakeJob, tmp_path: Path) -> None:
    epochs = entrypoint_job(tmp_path / "a", "stream")
    epochs["training"] |= {"steps": None, "epochs": 2}
    for name, spec, said in (
        ("epochs", epochs, "give training.steps"),
        (
            "once",
            entrypoint_job(tmp_path / "b", "once"),
            "Task.train is of type generator, which has no __len__ and no batch; give an object with",
        ),
    ):
        (end,) = make_job(spec, name).run()
        assert end.result is not None
        assert end.result.failure is not None
        assert end.result.failure.kind == "invalid_input"
        assert said in end.result.failure.message


def test_with_workers_the_step_does_not_wait_for_slow_data(make_job: MakeJob, tmp_path: Path) -> None:
    """Data and forward pass take as long as each other: two threads hide all of the one behind the other."""
    waits = []
    for workers in (0, 2):
        end = succeed(make_job(entrypoint_job(tmp_path / f"{workers}", "slow", steps=6, data_workers=workers), f"{workers}"), 1)
        seconds = end.curve("data_seconds")
        waits.append(sum(seconds[step] for step in range(2, 7)))  # the first step has nothing that was computed ahead
    assert waits[1] < waits[0] / 2
    assert used(tmp_path / "0") == used(tmp_path / "2")
