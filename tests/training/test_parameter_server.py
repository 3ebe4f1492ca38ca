"""Jobs with parameter servers: the run of one process to the last bit, through faults, pauses and resizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.training.link import Broken, Parked, Stalled
from paceline.training.saving import manifest as manifests
from tests.faults import Fault, computed, faulty_job
from tests.gangs import Job, RankEnd, RunningGang
from tests.release_only import AT_LENGTH
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_resnet, write_batches
from tests.training.test_reproducible import run, uneven_gpt
from tests.waiting import wait_until

#: Only ranks import it, at the end of their copy of the task.
FAULTS = Path(__file__).parents[1] / "user_code" / "served_faults.py"
LAST_STEP = 12
SAVED_EVERY = 4


def served(spec: dict[str, Any], ranks: int, servers: int = 1) -> dict[str, Any]:
    return spec | {"resources": {"nodes": ranks}, "parallelism": {"strategy": "parameter_server", "servers": servers}}


def test_any_number_of_servers_and_workers_gives_the_bits_of_one_process(make_job: MakeJob) -> None:
    """Uneven shares, clipping, dropout, evaluation; a server for every few tensors."""
    alone = run(make_job(uneven_gpt(), "alone"), 1)
    sizes = ((2, 1), (4, 1), (5, 3)) if AT_LENGTH else ((2, 1), (5, 3))
    for ranks, servers in sizes:
        assert run(make_job(served(uneven_gpt(), ranks, servers), f"{ranks}-{servers}"), ranks) == alone, (ranks, servers)


@pytest.mark.parametrize("optimizer", ["sgd", "adafactor", "nadam"])
def test_so_do_running_statistics_and_every_optimizer(make_job: MakeJob, tmp_path: Path, optimizer: str) -> None:
    write_batches(tmp_path)
    spec = tiny_resnet(tmp_path, precision="bf16", optimizer={"kind": optimizer, "lr": 0.01})
    assert run(make_job(served(spec, 4, 2)), 4) == run(make_job(spec, "alone"), 1)


def struck_job(folder: Path, *faults: tuple[int, int, str, str], ranks: int, servers: int = 1, **changes: Any) -> dict[str, Any]:
    """A job whose ranks (rank, step, moment, kind) are struck; with batch norm, and a checkpoint after steps 4, 8 and 12."""
    saves = {"checkpoint": {"every_steps": SAVED_EVERY, "keep_last": 10, "asynchronous": False}}
    spec = served(faulty_job(folder, steps=LAST_STEP, **saves | changes), ranks, servers)
    task = folder / "faulty_task.py"
    task.write_text(task.read_text() + FAULTS.read_text())
    planned = [dict(zip(("rank", "step", "moment", "kind"), fault, strict=True)) for fault in faults]
    (folder / "served.json").write_text(json.dumps(planned))
    return spec


def close_up(gang: RunningGang, *survivors: int, newcomers: int = 0, generation: int = 1) -> None:
    """When each survivor has noticed by itself. gloo does not wake one now and then, and if that is the first server nobody breaks off
    (`distributed/abort`): such ranks have told that they stall, and the order frees them."""
    for rank in survivors:
        gang.agent.until(generation, rank, (Broken, Stalled))
    gang.close_up(*survivors, newcomers=newcomers)


def assert_same_run(make_job: MakeJob, folder: Path, job: Job, *leaders: RankEnd, once: bool) -> None:
    """The losses and the final state of one process, to the last bit. `once`: no step was told twice."""
    alone = make_job(faulty_job(folder, nodes=1, steps=LAST_STEP, checkpoint={"every_steps": SAVED_EVERY}), "alone")
    (undisturbed,) = alone.run(1)
    curve: dict[int, float] = {}
    for leader in leaders:
        assert not (once and curve.keys() & leader.curve("loss").keys())
        curve |= leader.curve("loss")
    assert curve == undisturbed.curve("loss")
    assert hash_of_parameters(job) == hash_of_parameters(alone)


def hash_of_parameters(job: Job) -> str | None:
    """Of the newest checkpoint, with running statistics."""
    return manifests.read(Path(job.newest_first()[0])).parameters_sha256


@pytest.mark.parametrize("moment", ["behind pull", "before finish_step", "behind finish_step", "behind clip"])
def test_a_killed_worker_costs_no_step(make_job: MakeJob, tmp_path: Path, moment: str) -> None:
    job = make_job(struck_job(tmp_path / "code", (2, 6, moment, "SIGKILL"), ranks=4))
    gang = job.start(4)
    close_up(gang, 0, 1, 3)
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [0, 0, -9, 0], after.output
    assert not after.events_of("checkpoint_restored")
    assert_same_run(make_job, tmp_path / "well", job, ends[0], after, once=True)


@pytest.mark.parametrize(("servers", "broken"), [(1, 0), (2, 0), (2, 1)])
def test_a_server_that_breaks_off_finishes_the_step_that_others_have_committed(
    make_job: MakeJob, tmp_path: Path, servers: int, broken: int
) -> None:
    """It has sent its norms, so that the others commit step 6, and loses its connections before it updates."""
    job = make_job(struck_job(tmp_path / "code", (broken, 6, "behind clip", "break"), ranks=4, servers=servers))
    gang = job.start(4)
    close_up(gang, 0, 1, 2, 3)
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [0] * 4, after.output
    assert not after.events_of("checkpoint_restored")
    assert (after.events_of("carried_on")[0]["step"], min(after.curve("loss"))) == (6, 7 if broken else 6)
    assert_same_run(make_job, tmp_path / "well", job, ends[0], after, once=True)


@pytest.mark.parametrize(("step", "back_to"), [(6, 4), (3, 0)])
@pytest.mark.parametrize("newcomers", [0, 1])
def test_a_killed_server_sends_all_back_to_the_checkpoint_or_the_seed(
    make_job: MakeJob, tmp_path: Path, step: int, back_to: int, newcomers: int
) -> None:
    """Two survivors stay as they are or, with a new process, a third of them; the first becomes a server where one is lost."""
    job = make_job(struck_job(tmp_path / "code", (0, step, "behind finish_step", "SIGKILL"), ranks=3 + newcomers))
    gang = job.start(3 + newcomers)
    close_up(gang, *range(1, 3 + newcomers), newcomers=newcomers)
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [-9] + [0] * (2 + 2 * newcomers), after.output
    assert [event["step"] for event in after.events_of("checkpoint_restored")] == ([back_to] if back_to else [])
    assert min(after.curve("loss")) == back_to + 1
    assert_same_run(make_job, tmp_path / "well", job, ends[0], after, once=False)


def test_the_last_worker_is_replaced_and_no_step_is_lost(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(struck_job(tmp_path / "code", (1, 6, "before finish_step", "SIGKILL"), ranks=2))
    gang = job.start(2)
    close_up(gang, 0, newcomers=1)
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [0, -9, 0], after.output
    assert not after.events_of("checkpoint_restored")
    assert_same_run(make_job, tmp_path / "well", job, ends[0], after, once=True)


def test_survivors_keep_what_they_have_computed_of_a_broken_step(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(struck_job(tmp_path / "code", (2, 6, "before finish_step", "SIGKILL"), ranks=4))
    gang = job.start(4)
    pids = gang.pids()
    close_up(gang, 0, 1, 3)
    gang.wait()
    times = computed(tmp_path / "code")
    again = [index for index in range(6) if sum(times[pid, 6, index] for pid in pids) > 1]
    assert again == [2, 3]  # of the lost one only
    assert {times[pids[0], step, index] for step in range(1, 13) for index in range(6)} == {0}  # a server computes none


def test_workers_come_and_go_and_a_server_that_leaves_is_saved_first(make_job: MakeJob, tmp_path: Path) -> None:
    """From 1 + 2 ranks to 1 + 3, and then without the first server: a worker takes its place from the checkpoint of that very step."""
    holds = [Fault(rank=1, step=step, kind="hold") for step in (3, 8)]
    job = make_job(served(faulty_job(tmp_path / "code", *holds, steps=LAST_STEP, checkpoint={"every_steps": None}), 3))
    gang = job.start(3)
    new = gang.park()
    gang.until(new, Parked)
    wait_until((tmp_path / "code" / holds[0].done).exists, "step 3", seconds=60)
    gang.resize(0, 1, 2, new)
    holds[0].release(tmp_path / "code")
    wait_until((tmp_path / "code" / holds[1].done).exists, "step 8", seconds=60)
    gang.resize(1, 2, new)
    gang.release(0)
    holds[1].release(tmp_path / "code")
    ends, grown, moved = gang.wait(), gang.left(2, 0), gang.left(3, 0)
    assert [end.exit_code for end in ends] == [0] * 4, moved.output
    assert not grown.events_of("checkpoint_restored")
    (restored,) = moved.events_of("checkpoint_restored")
    assert restored["step"] == max(grown.curve("loss"))
    assert_same_run(make_job, tmp_path / "well", job, ends[0], grown, moved, once=True)


def test_a_paused_job_goes_on_with_other_ranks_under_other_plans_and_back(make_job: MakeJob) -> None:
    """To the last bit, optimizer state included: servers' checkpoints are those of any other plan."""
    spec = uneven_gpt() | {"checkpoint": {"every_steps": 3}}
    curve = make_job(spec, "straight").run(1)[0].curve("loss")
    spec["training"] |= {"pause_at_steps": [3, 6, 9]}
    plans = [(4, 2), (1, 0), (3, 1), (2, 0)]
    found: dict[int, float] = {}
    folder = make_job(spec).folder
    job: Job | None = None
    for ranks, servers in plans:
        plan = served(spec, ranks, servers) if servers else spec | {"resources": {"nodes": ranks}}
        job = Job(folder, plan, generation=job.generation if job else 0)
        ends = job.resume(ranks) if job.generation else job.run(ranks)
        assert [end.exit_code for end in ends] == [0] * ranks, ends[0].output
        found |= ends[0].curve("loss")
    assert found == curve


def test_a_paused_job_whose_servers_have_matrices_alone_goes_on(make_job: MakeJob) -> None:
    """To the last bit. Three servers of this model have: a matrix and its bias, a matrix, and the rest."""
    length = {"steps": 4, "global_batch_size": 8, "micro_batch_size": 2}
    spec = {"name": "mlp", "model": {"kind": "mlp", "hidden": [128, 128]}, "data": {"kind": "digits"}, "training": length}
    spec |= {"optimizer": {"kind": "adamw", "lr": 0.01}, "checkpoint": {"every_steps": 2}}
    (alone,) = make_job(spec, "alone").run(1)
    job = make_job(served(spec | {"training": length | {"pause_at_steps": [2]}}, 4, servers=3))
    before, after = job.run(4)[0], job.resume(4)[0]
    assert (before.exit_code, after.exit_code) == (0, 0), after.output
    assert before.curve("loss") | after.curve("loss") == alone.curve("loss")
