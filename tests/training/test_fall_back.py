"""A model in parts loses one: the others fall back to the newest checkpoint in the same processes, or close up where every part is left."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.distributed import env
from paceline.distributed.solo_group import SoloGroup
from paceline.training.link import Broken, Joined, Parked, Progress, RankHello
from paceline.training.restoring import newest_first
from paceline.training.saving import checkpoint
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import CheckpointDirectory
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.shards import tensors_of
from paceline.training.saving.storage import FolderStorage
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from tests.faults import Fault, Moment, faulty_job, states
from tests.gangs import Job, RankEnd, RunningGang
from tests.ranks import RANK_TIMEOUT_SECONDS, make_world
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

LAST_STEP = 12
SAVED_EVERY = 4
PARALLELISM: dict[str, dict[str, Any]] = {
    "fsdp": {"strategy": "fsdp"},
    "hsdp": {"strategy": "fsdp", "shard": 2},
    "pipelines": {"pipeline": 2},
}


def sharded_job(folder: Path, *faults: Fault, plan: str = "fsdp", nodes: int, **changes: Any) -> dict[str, Any]:
    """Batches of 12 in micro-batches of 2; a checkpoint after steps 4, 8 and 12."""
    known = {"parallelism": PARALLELISM[plan], "checkpoint": {"every_steps": SAVED_EVERY, "keep_last": 10, "asynchronous": False}}
    return faulty_job(folder, *faults, nodes=nodes, steps=LAST_STEP, task="gpt", **known | changes)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of one process, which those of every plan come close to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return Job(folder / "job", faulty_job(folder / "code", nodes=1, steps=LAST_STEP, task="gpt")).run()[0].curve("loss")


def survive(gang: RunningGang, *survivors: int, generation: int = 1, **changes: Any) -> None:
    for rank in survivors:
        gang.agent.until(generation, rank, Broken)
    gang.close_up(*survivors, **changes)


def await_end(gang: RunningGang, victim: int) -> None:
    """As its agent sees it: the others need not have noticed."""
    process = gang.processes[victim]
    process.join(RANK_TIMEOUT_SECONDS)
    assert process.exitcode == -signal.SIGKILL


def replica_carries_on(gang: RunningGang, victim: int, replica: tuple[int, int], parked: int) -> tuple[dict[int, float], dict[str, Any]]:
    """A replica without the victim closes up in the same processes, and whoever is left of the victim's waits for others to make one up with.
    The losses of the first rank, and what it says of carrying on: from its own state, without a checkpoint."""
    pids = gang.pids()
    await_end(gang, victim)
    gang.close_up(*replica, parked=(parked,))
    gang.agent.until(2, 2, Parked)
    assert_same_processes(gang, 2, [pids[rank] for rank in replica])
    gang.release(parked)
    ends, after = gang.wait(), gang.left(2, 0)
    (carried,) = after.events_of("carried_on")
    assert not carried["fell_back"]
    assert not after.events_of("checkpoint_restored"), after.output
    return ends[0].curve("loss") | after.curve("loss"), carried


def assert_same_processes(gang: RunningGang, generation: int, pids: list[int]) -> None:
    for rank, pid in enumerate(pids):
        gang.agent.until(generation, rank, Joined)
        assert gang.agent.heard[generation, rank][0].pid == pid


def assert_fell_back(life: RankEnd, step: int) -> None:
    (restored,), (carried,) = life.events_of("checkpoint_restored"), life.events_of("carried_on")
    assert (restored["step"], carried["step"], carried["fell_back"]) == (step, step, True)
    assert carried["entered_at"] <= carried["joined_at"] <= carried["agreed_at"] <= carried["first_step_at"]


@pytest.mark.parametrize("moment", ["data", "backward", "update"])
def test_two_of_three_go_on_from_the_checkpoint_cut_for_two(
    make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float], moment: Moment
) -> None:
    gang = make_job(sharded_job(tmp_path / "code", Fault(rank=1, step=7, moment=moment), nodes=3)).start(3)
    pids = gang.pids()
    survive(gang, 0, 2)
    assert_same_processes(gang, 2, [pids[0], pids[2]])
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [0, -9, 0], after.output
    assert_fell_back(after, SAVED_EVERY)
    assert sorted(after.curve("loss")) == list(range(SAVED_EVERY + 1, LAST_STEP + 1))
    curve = ends[0].curve("loss") | after.curve("loss")
    assert curve == pytest.approx(undisturbed, rel=1e-5)


def test_a_new_process_takes_the_place_beside_the_survivors(make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    gang = make_job(sharded_job(tmp_path / "code", Fault(rank=0, step=9, moment="backward", generation=1), nodes=2)).start(2)
    pids = gang.pids()
    survive(gang, 1, newcomers=1)
    assert_same_processes(gang, 2, [pids[1]])
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [-9, 0, 0], after.output
    assert_fell_back(after, 2 * SAVED_EVERY)
    curve = ends[0].curve("loss") | after.curve("loss")
    assert curve == pytest.approx(undisturbed, rel=1e-5)


def test_who_has_another_place_afterwards_holds_and_saves_that_part(make_job: MakeJob) -> None:
    """To the last bit: ranks in the same places compute the same, whoever they are."""
    spec = tiny_gpt(2, steps=120) | {"parallelism": PARALLELISM["fsdp"], "checkpoint": {"every_steps": 20}, "fault_tolerance": {}}
    well, job = make_job(spec, "undisturbed"), make_job(spec)
    well.run(2)
    gang = job.start(2)
    gang.agent.until(1, 0, Progress, lambda said: said.step >= 30)
    gang.kill(0)
    survive(gang, 1, newcomers=1)
    gang.wait()
    expected, found = saved_tensors(well), saved_tensors(job)
    assert {name for name, value in found.items() if not torch.equal(value, expected[name])} == set()


def saved_tensors(job: Job) -> dict[str, torch.Tensor]:
    """Parameters and the state of the optimizer, in the newest checkpoint."""
    folder = Path(job.newest_first()[0])
    state = new_state(JobSpec.model_validate(job.spec), torch.device("cpu"), env.cache_directory())
    checkpoint.load(SoloGroup(), state, folder, manifests.read(folder))
    tensors = tensors_of(state)
    return {name: value for kind in tensors for name, value in tensors[kind].items() if isinstance(value, torch.Tensor)}


def test_without_a_checkpoint_they_begin_again_from_the_seed(make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    gang = make_job(sharded_job(tmp_path / "code", Fault(rank=2, step=3), nodes=3)).start(3)
    survive(gang, 0, 1)
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [0, 0, -9], after.output
    assert after.curve("loss") == pytest.approx(undisturbed, rel=1e-5)
    (carried,) = after.events_of("carried_on")
    assert (carried["step"], carried["fell_back"]) == (0, True)


def test_a_damaged_checkpoint_is_passed_over(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(sharded_job(tmp_path / "code", Fault(rank=2, step=10, kind="hold", moment="data"), nodes=3))
    gang = job.start(3)
    gang.agent.until(1, 0, Progress, lambda said: said.step >= 9)
    (job.checkpoints / "step-8.g1" / ".metadata").write_bytes(b"torn")
    gang.kill(2)
    survive(gang, 0, 1)
    gang.wait()
    after = gang.left(2, 0)
    assert_fell_back(after, SAVED_EVERY)
    assert [Path(event["directory"]).name for event in after.events_of("checkpoint_damaged")] == ["step-8.g1"]


def committed_in(folder: Path, step: int, generation: int) -> CommittedCheckpoint:
    made = manifests.Manifest(
        job_id="job", step=step, generation=generation, world_size=1, seed=0, spec_sha256="", created=0.0, best=None, metrics={}, files={}
    )
    return CommittedCheckpoint(folder / manifests.directory_name(step, generation), made, "")


def test_one_that_is_being_deleted_is_not_restored_before_newer_ones(tmp_path: Path) -> None:
    """The coordinator names it no more. A newer one than all that it names is one that it has not heard of, and comes first."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    named = (ours / "step-400.g5", ours / "step-300.g5", ours / "step-90.g4", other / "step-900.g5")
    world = make_world(0, 1, 1, ours, generation=6, restore_from=tuple(map(str, named)))
    unreported = [committed_in(ours, step, generation) for step, generation in ((100, 5), (500, 5), (600, 4))]
    checkpoints = CheckpointDirectory(FolderStorage(ours), "job", 6, JobSpec.model_validate(tiny_gpt()), SoloGroup())
    assert newest_first(checkpoints, unreported, 5, world) == [ours / "step-500.g5", *named]


def test_where_nobody_died_no_step_is_lost(make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    """A connection broke: the same ranks in the same places still hold every part."""
    job = make_job(sharded_job(tmp_path / "code", Fault(rank=1, step=7, kind="hold", moment="backward"), nodes=2))
    gang = job.start(2)
    gang.agent.until(1, 0, Progress, lambda said: said.step >= 6)
    gang.close_up(0, 1)
    Fault(rank=1, step=7, kind="hold", moment="backward").release(tmp_path / "code")
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [0, 0], after.output
    (carried,) = after.events_of("carried_on")
    assert (carried["step"], carried["transfers"], carried["fell_back"]) == (6, 0, False)
    curve = ends[0].curve("loss") | after.curve("loss")
    assert curve == pytest.approx(undisturbed, rel=1e-5)


@pytest.mark.parametrize(("victim", "replica", "parked"), [(3, (0, 1), 2), (0, (2, 3), 1)])
def test_a_lost_shard_group_goes_and_its_replica_carries_on(
    make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float], victim: int, replica: tuple[int, int], parked: int
) -> None:
    gang = make_job(sharded_job(tmp_path / "code", Fault(victim, step=7, moment="backward"), plan="hsdp", nodes=4)).start(4)
    curve, carried = replica_carries_on(gang, victim, replica, parked)
    assert carried["step"] == 6
    assert curve == pytest.approx(undisturbed, rel=1e-5)


def test_what_is_held_outlives_a_generation_that_never_stood(make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    gang = make_job(sharded_job(tmp_path / "code", Fault(3, step=7, moment="backward"), plan="hsdp", nodes=4)).start(4)
    await_end(gang, 3)
    gang.release(2)
    gang.close_up(0, 1, unnotified=(1,))
    gang.agent.until(2, 0, RankHello)  # it waits there for one that will not come
    gang.close_up(0, 1)
    ends, after = gang.wait(), gang.left(3, 0)
    (carried,) = after.events_of("carried_on")
    assert (carried["step"], carried["fell_back"]) == (6, False)
    curve = ends[0].curve("loss") | after.curve("loss")
    assert curve == pytest.approx(undisturbed, rel=1e-5)


def test_a_shard_group_is_made_up_anew_and_joins_at_a_boundary(make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    code = tmp_path / "code"
    wait = Fault(rank=0, step=6, kind="hold", moment="data")
    gang = make_job(sharded_job(code, Fault(rank=3, step=3), wait, plan="hsdp", nodes=4)).start(4)
    pids = gang.pids()
    await_end(gang, 3)
    gang.close_up(0, 1, parked=(2,))
    gang.agent.until(2, 2, Parked)
    assert_same_processes(gang, 2, pids[:2])  # nobody is told of a boundary in a generation that does not stand
    newcomer = gang.park()
    gang.until(newcomer, Parked)
    gang.resize(0, 1, 2, newcomer)
    wait.release(code)
    ends, after = gang.wait(), gang.left(3, 0)
    assert [end.exit_code for end in ends] == [0, 0, 0, -9, 0], after.output
    (carried,) = after.events_of("carried_on")
    assert (carried["transfers"], carried["fell_back"]) == (2, False)
    (saved, *_) = (event for event in gang.left(2, 0).events_of("checkpoint_committed") if event["step"] == carried["step"])
    assert saved["generation"] == 2  # in case a part should be lost on the way
    curve = ends[0].curve("loss") | gang.left(2, 0).curve("loss") | after.curve("loss")
    assert curve == pytest.approx(undisturbed, rel=1e-5)


@pytest.mark.parametrize(("plan", "replica", "parked"), [("hsdp", (0, 1), 2), ("pipelines", (0, 2), 1)])
def test_replicas_in_parts_can_be_the_same_run_to_the_last_bit(
    make_job: MakeJob, tmp_path: Path, plan: str, replica: tuple[int, int], parked: int
) -> None:
    """Through the loss of one in the middle of a step, and another one that joins."""
    code, wait = tmp_path / "code", Fault(rank=0, step=6, kind="hold", moment="data")
    well = make_job(sharded_job(tmp_path / "well", plan=plan, nodes=4, reproducible=True), name="undisturbed")
    expected = well.run(4)[0].curve("loss")
    gang = make_job(sharded_job(code, Fault(rank=3, step=3, moment="backward"), wait, plan=plan, nodes=4, reproducible=True)).start(4)
    pids = gang.pids()
    await_end(gang, 3)
    gang.close_up(*replica, parked=(parked,))
    gang.agent.until(2, 2, Parked)
    assert_same_processes(gang, 2, [pids[rank] for rank in replica])
    newcomer = gang.park()
    gang.until(newcomer, Parked)
    gang.resize(0, 1, 2, newcomer)
    wait.release(code)
    ends, after = gang.wait(), gang.left(3, 0)
    assert [end.exit_code for end in ends] == [0, 0, 0, -9, 0], after.output
    assert ends[0].curve("loss") | gang.left(2, 0).curve("loss") | after.curve("loss") == expected
    found, undisturbed_states = states(code), states(tmp_path / "well")
    assert [len(undisturbed_states[step]) for step in range(1, LAST_STEP + 1)] == [2] * LAST_STEP  # one of each part
    found[1] &= undisturbed_states[1]  # who is parked rehearses step 1 with a model of its own
    assert found == undisturbed_states


def test_a_sharded_gang_grows_at_a_boundary_from_what_it_has_just_saved(
    make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float]
) -> None:
    code = tmp_path / "code"
    wait = Fault(rank=0, step=6, kind="hold", moment="data")
    gang = make_job(sharded_job(code, wait, nodes=2)).start(2)
    newcomer = gang.park()
    gang.until(newcomer, Parked)
    gang.resize(0, 1, newcomer)
    wait.release(code)
    ends, after = gang.wait(), gang.left(2, 0)
    assert [end.exit_code for end in ends] == [0, 0, 0], after.output
    (restored,) = after.events_of("checkpoint_restored")
    assert restored["step"] == max(ends[0].curve("loss"))  # nothing is done again
    assert sorted([*ends[0].curve("loss"), *after.curve("loss")]) == list(range(1, LAST_STEP + 1))
    curve = ends[0].curve("loss") | after.curve("loss")
    assert curve == pytest.approx(undisturbed, rel=1e-5)
