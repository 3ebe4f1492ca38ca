"""Ranks join and leave a gang that goes on training: nobody stops alone, and the run is the undisturbed one to the last bit."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from paceline.monitoring.file_hashes import File
from paceline.training.link import Broken, Parked, PauseRequest, Progress, RankHello, Release, ToRank
from paceline.training.saving import manifest as manifests
from paceline.training.saving.shards import tensors_of
from paceline.training.saving.storage import SIGN
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from paceline.training.warm_up import warm_up_step
from tests.faults import Fault, faulty_job
from tests.gangs import Job, RunningGang
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_resnet, write_batches
from tests.waiting import wait_until

STEPS = 60
HOLD_TIMEOUT_SECONDS = 60.0


class Held:
    """A job whose rank 0 stands still in the middle of given steps, so that a test can act there and nowhere else."""

    def __init__(self, make_job: MakeJob, folder: Path, *at: int, faults: tuple[Fault, ...] = (), nodes: int = 2, **changes: Any) -> None:
        self.folder = folder
        self.holds = [Fault(rank=0, step=step, kind="hold") for step in at]
        self.job = make_job(faulty_job(folder, *self.holds, *faults, nodes=nodes, steps=STEPS, **changes))
        self.gang: RunningGang = self.job.start(nodes)

    def until(self, step: int) -> None:
        wait_until((self.folder / self.holds[0].done).exists, f"step {step}", seconds=HOLD_TIMEOUT_SECONDS)

    def go_on(self) -> None:
        self.holds.pop(0).release(self.folder)


def curve_of(gang: RunningGang, *leaders: int) -> dict[int, float]:
    """The job's losses: rank 0's of each generation."""
    curve: dict[int, float] = {}
    for generation in leaders:
        curve |= gang.left(generation, 0).curve("loss")
    return curve


def steps_in(gang: RunningGang, generation: int) -> list[int]:
    return sorted(gang.left(generation, 0).curve("loss"))


def final_tensors(job: Job) -> File:
    """Size and hash of what one rank saved at the end: parameters, running statistics, optimizer."""
    return manifests.read(Path(job.newest_first()[0])).files["__0_0.distcp"]


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "momentum": {"optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9}},
    "plain": {"optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.0}},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_run_that_grew_and_shrank_is_the_undisturbed_one(make_job: MakeJob, tmp_path: Path, kind: str) -> None:
    changes = OPTIMIZERS[kind]
    held = Held(make_job, tmp_path / "code", 5, 20, 35, **changes)
    gang = held.gang
    new = gang.park()
    gang.until(new, Parked)
    held.until(5)
    gang.resize(0, 1, new)
    held.go_on()
    held.until(20)
    gang.resize(new, 0)  # a newcomer leads from now on
    gang.release(1)
    held.go_on()
    held.until(35)
    gang.resize(0)
    gang.release(new)
    held.go_on()
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0, 0], [end.output for end in ends]
    outcomes = [gang.left(generation, rank).result for generation, rank in ((4, 0), (2, 1), (3, 0))]
    assert [result.outcome if result else None for result in outcomes] == ["completed", "released", "released"]
    begun_at = [gang.left(generation, 0).events_of("carried_on")[0]["step"] for generation in (2, 3, 4)]
    assert 5 <= begun_at[0] < 20 <= begun_at[1] < 35 <= begun_at[2]
    undisturbed = make_job(faulty_job(tmp_path / "well", steps=STEPS, **changes), name="well")
    assert curve_of(gang, 1, 2, 3, 4) == undisturbed.run(1)[0].curve("loss")  # to the last bit
    assert final_tensors(held.job) == final_tensors(undisturbed)


def test_nobody_leaves_before_all_are_told_and_told_twice_is_told_once(make_job: MakeJob, tmp_path: Path) -> None:
    held = Held(make_job, tmp_path / "code", 5, 30)
    gang = held.gang
    held.until(5)
    gang.resize(0, 1, unnotified=(1,))
    held.go_on()
    held.until(30)  # in the first generation, far from where rank 0 heard of the second
    assert gang.agent.heard.get((2, 0)) is None
    for _ in range(3):
        gang.tell(0)
        gang.tell(1)
    held.go_on()
    first, second = gang.wait()
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert max(steps_in(gang, 1)) >= 30
    assert steps_in(gang, 1) + steps_in(gang, 2) == list(range(1, STEPS + 1))
    assert [type(message) for message in gang.agent.heard[2, 1]].count(RankHello) == 1
    assert not any(isinstance(message, Broken) for messages in gang.agent.heard.values() for message in messages)


def test_a_spare_takes_a_dead_ranks_place_at_once(make_job: MakeJob, tmp_path: Path) -> None:
    gang = make_job(faulty_job(tmp_path / "code", Fault(rank=1, step=6))).start(2)
    spare = gang.park()
    gang.until(spare, Parked)
    gang.agent.until(1, 0, Broken)
    gang.close_up(0, spare)
    assert gang.agent.until(2, 1, RankHello).pid == gang.pids()[spare]
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, 0]
    curve = curve_of(gang, 1, 2)
    assert curve == make_job(faulty_job(tmp_path / "well"), name="well").run(2)[0].curve("loss")


def test_a_newcomer_at_the_jobs_very_start_has_an_optimizer_that_has_taken_no_step(make_job: MakeJob, tmp_path: Path) -> None:
    gang = make_job(faulty_job(tmp_path / "code", Fault(rank=1, step=1))).start(2)
    spare = gang.park()
    gang.until(spare, Parked)
    gang.agent.until(1, 0, Broken)
    gang.close_up(0, spare)
    gang.wait()
    assert steps_in(gang, 2)[0] == 1
    assert curve_of(gang, 2) == make_job(faulty_job(tmp_path / "well"), name="well").run(2)[0].curve("loss")


def test_a_joiner_that_never_comes_costs_its_gang_nothing(make_job: MakeJob, tmp_path: Path) -> None:
    held = Held(make_job, tmp_path / "code", 5)
    gang = held.gang
    new = gang.park()
    gang.until(new, Parked)
    held.until(5)
    gang.kill(new)
    gang.resize(0, 1, new, unnotified=(new,))
    held.go_on()
    for rank in (0, 1):
        gang.agent.until(2, rank, RankHello)
    gang.close_up(0, 1)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0, -9]
    assert steps_in(gang, 1) + steps_in(gang, 3) == list(range(1, STEPS + 1))


def test_a_joiner_waits_out_a_restart_of_the_agent_that_serves_the_store(make_job: MakeJob, tmp_path: Path) -> None:
    held = Held(make_job, tmp_path / "code", 5)
    gang = held.gang
    new = gang.park()
    gang.until(new, Parked)
    held.until(5)
    gang.resize(0, 1, new)
    wait_until(lambda: gang.store.has_arrivals(2), "the joiner at the meeting point", seconds=HOLD_TIMEOUT_SECONDS)
    gang.store.restart(2)
    held.go_on()
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0, 0]
    assert not any(isinstance(message, Broken) for messages in gang.agent.heard.values() for message in messages)
    assert steps_in(gang, 1) + steps_in(gang, 2) == list(range(1, STEPS + 1))


def test_a_rank_that_dies_while_a_change_is_pending_does_not_stop_the_others(make_job: MakeJob, tmp_path: Path) -> None:
    held = Held(make_job, tmp_path / "code", 5, faults=(Fault(rank=1, step=20),))
    gang = held.gang
    new = gang.park()
    gang.until(new, Parked)
    held.until(5)
    gang.resize(0, 1, new, unnotified=(1,))  # so that it stays pending
    held.go_on()
    gang.agent.until(2, 0, RankHello)  # it goes to the order that is there
    gang.close_up(0, new)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, 0]
    assert isinstance(gang.agent.until(1, 0, Broken), Broken)
    assert steps_in(gang, 1) + steps_in(gang, 3) == list(range(1, STEPS + 1))


def test_a_released_rank_whose_peer_dies_first_is_gone_all_the_same(make_job: MakeJob, tmp_path: Path) -> None:
    held = Held(make_job, tmp_path / "code", 5, faults=(Fault(rank=1, step=20),), nodes=3)
    gang = held.gang
    held.until(5)
    gang.resize(0, 1, unnotified=(0, 1))
    gang.release(2)
    held.go_on()
    gang.agent.until(1, 0, Broken)
    gang.close_up(0)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, 0]
    assert ends[2].result is not None
    assert ends[2].result.outcome == "released"
    assert steps_in(gang, 1) + steps_in(gang, 3) == list(range(1, STEPS + 1))


@pytest.mark.parametrize("request_", [Release(), PauseRequest()])
def test_a_parked_rank_that_is_not_needed_leaves_by_itself(make_job: MakeJob, tmp_path: Path, request_: ToRank) -> None:
    held = Held(make_job, tmp_path / "code", 5)
    gang = held.gang
    spare = gang.park()
    gang.until(spare, Parked)
    gang.agent.ask(gang.identities[spare], request_)
    held.until(5)
    held.go_on()
    *members, parked = gang.wait()
    assert [end.exit_code for end in members] == [0, 0]
    assert (parked.exit_code, parked.result.outcome if parked.result else None) == (0, "released")


def test_a_parked_rank_ends_by_sigterm(make_job: MakeJob, tmp_path: Path) -> None:
    gang = make_job(faulty_job(tmp_path / "code", nodes=1, steps=1)).start(1)
    spare = gang.park()
    gang.until(spare, Parked)
    gang.kill(spare, signal.SIGTERM)
    assert [end.exit_code for end in gang.wait()] == [0, -15]


def test_a_parked_rank_stays_parked_through_other_generations(make_job: MakeJob, tmp_path: Path) -> None:
    held = Held(make_job, tmp_path / "code", 5, faults=(Fault(rank=1, step=20),))
    gang = held.gang
    spare = gang.park()
    gang.until(spare, Parked)
    held.until(5)
    held.go_on()
    gang.agent.until(1, 0, Broken)
    gang.close_up(0, parked=(spare,))
    gang.agent.until(2, 1, Parked)
    gang.release(spare)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, 0]
    assert gang.left(2, 1).result is not None


def test_a_boundary_is_after_what_is_due(make_job: MakeJob, tmp_path: Path) -> None:
    held = Held(make_job, tmp_path / "code", 5, checkpoint={"every_steps": 1, "keep_last": 100})
    gang = held.gang
    held.until(5)
    gang.resize(1)
    gang.release(0)
    held.go_on()
    gang.agent.until(2, 0, Progress)
    gang.wait()
    last = max(steps_in(gang, 1))
    saved = {int(Path(folder).name[5:].split(".")[0]): Path(folder).suffix for folder in held.job.newest_first()}
    assert sorted(saved) == list(range(1, STEPS + 1))
    assert (saved[last], saved[last + 1]) == (".g1", ".g2")


def test_a_rehearsal_leaves_the_state_as_it_was_built(tmp_path: Path) -> None:
    write_batches(tmp_path)
    spec = JobSpec.model_validate(tiny_resnet(tmp_path))
    state, fresh = (new_state(spec, torch.device("cpu"), tmp_path) for _ in range(2))
    warm_up_step(spec, state)
    assert not state.optimizer.state
    assert all(parameter.grad is None for parameter in state.task.model.parameters())
    assert (state.step, state.started, state.buffers_before) == (0, False, ())
    mine, expected = tensors_of(state), tensors_of(fresh)
    assert mine.keys() == expected.keys()
    for part in expected:
        assert mine[part].keys() == expected[part].keys()
        for name, value in expected[part].items():
            assert torch.equal(mine[part][name], value) if isinstance(value, torch.Tensor) else mine[part][name] == value, name


def test_a_rank_that_does_not_see_the_checkpoints_ends_before_it_joins(make_job: MakeJob, tmp_path: Path) -> None:
    gang = make_job(faulty_job(tmp_path / "code", steps=30)).start(2)
    blind = gang.park(checkpoint_directory=str(tmp_path / "elsewhere"))
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0, 1]
    failure = gang.left(1, 2).result.failure if gang.left(1, 2).result else None  # type: ignore[union-attr]
    assert failure is not None
    assert (failure.kind, blind) == ("invalid_input", 2)
    assert "elsewhere is not the same on every node: rank 2 does not see what rank 0 wrote" in failure.message


def test_a_rank_that_sees_other_checkpoints_is_left_behind(make_job: MakeJob, tmp_path: Path) -> None:
    """Those of an earlier visit of this job to its node, say."""
    held = Held(make_job, tmp_path / "code", 5)
    gang = held.gang
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / SIGN).touch()
    new = gang.park(checkpoint_directory=str(elsewhere))
    gang.until(new, Parked)
    held.until(5)
    gang.resize(0, 1, new, unnotified=(new,))
    order = gang.orders[new]
    gang.orders[new] = msgspec.structs.replace(order, world=msgspec.structs.replace(order.world, checkpoint_directory=str(elsewhere)))
    gang.tell(new)
    held.go_on()
    for rank in (0, 1):
        assert "does not see checkpoint directory" in gang.agent.until(2, rank, Broken).failure.message
    gang.close_up(0, 1)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0, 1]
    assert curve_of(gang, 1, 3) == make_job(faulty_job(tmp_path / "well", steps=STEPS), name="well").run(1)[0].curve("loss")
