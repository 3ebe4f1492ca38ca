"""What jobs on real ranks record of their gradients: the numbers that one process finds by hand, and nothing that changes the training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch
from torch import nn

from paceline.monitoring.artifacts import NOTE_SUFFIX, RankArtifact, file_of
from paceline.monitoring.gradient_records import RecordedGradients, decode, decompress
from paceline.training.gradients.recorder import GradientRecorder, why_too_much
from paceline.training.link import Broken, GradientsRequest, Joined, PauseRequest, Progress
from paceline.training.schema.gradients import Gradients
from paceline.training.state import TrainState
from tests.faults import Fault, faulty_job
from tests.gangs import Job, RunningGang
from tests.ranks import RANK_TIMEOUT_SECONDS
from tests.training.conftest import MakeJob
from tests.training.gradients.fixed_task import by_hand, fixed_job
from tests.training.states import final_state
from tests.waiting import wait_until

REPRODUCIBLE: dict[str, Any] = {"parallelism": {"strategy": "ddp"}}
DDP = {"parallelism": {"strategy": "ddp"}, "reproducible": False}
PIPELINE: dict[str, Any] = {"parallelism": {"pipeline": 2}}
FSDP: dict[str, Any] = {"parallelism": {"strategy": "fsdp"}}
SERVER: dict[str, Any] = {"parallelism": {"strategy": "parameter_server"}}
OF_RANK = {0: [0, 1, 2], 1: [3, 4, 5]}
ALL = [0, 1, 2, 3, 4, 5]


def recorded(job: Job, generation: int = 1, kind: str = "gradients") -> dict[tuple[int, int], RecordedGradients]:
    """By step and rank."""
    found = {}
    for note in sorted(job.folder.glob(f"**/g{generation}/rank*/artifacts/{kind}*{NOTE_SUFFIX}")):
        artifact = msgspec.json.decode(note.read_bytes(), type=RankArtifact)
        assert artifact.bytes == file_of(note).stat().st_size
        found[artifact.first_step, int(note.parents[1].name.removeprefix("rank"))] = decode(decompress(file_of(note).read_bytes()))
    return found


def assert_as_by_hand(record: RecordedGradients, expected: dict[str, torch.Tensor]) -> None:
    assert [each.name for each in record.parameters] == list(expected)
    for each in record.parameters:
        gradient = expected[each.name]
        assert each.norm == pytest.approx(gradient.norm().item(), rel=1e-5), each.name
        assert (each.zeros, each.elements, each.nans, each.infs) == (int((gradient == 0).sum()), gradient.numel(), 0, 0), each.name
        assert (each.shape, each.sharded) == (tuple(gradient.shape), False)
        assert sum(each.histogram) == each.elements - each.zeros


@pytest.mark.parametrize("plan", [REPRODUCIBLE, DDP], ids=["reproducible", "ddp"])
def test_each_rank_records_its_own_part_of_the_mean(make_job: MakeJob, plan: dict[str, Any]) -> None:
    job = make_job(fixed_job(resources={"nodes": 2}, gradients={"steps": [1], "every": 3}, **plan))
    assert [end.exit_code for end in job.run(2)] == [0, 0]
    found = recorded(job)
    assert sorted(found) == [(1, 0), (1, 1), (3, 0), (3, 1)]
    for rank, micro_batches in OF_RANK.items():
        assert_as_by_hand(found[1, rank], by_hand(micro_batches))
    assert found[1, 0].parameters[0].zeros >= 24  # of the dead half of the first layer
    assert len(found[1, 0].edges) == 63


def test_one_rank_by_itself_records_the_whole_mean(make_job: MakeJob) -> None:
    job = make_job(fixed_job(gradients={"steps": [1]}, reproducible=False))
    assert job.run(1)[0].exit_code == 0
    assert_as_by_hand(recorded(job)[1, 0], by_hand(ALL))


def test_a_worker_beside_a_server_records_and_the_server_has_nothing(make_job: MakeJob) -> None:
    job = make_job(fixed_job(resources={"nodes": 2}, gradients={"steps": [1]}, **SERVER))
    assert [end.exit_code for end in job.run(2)] == [0, 0]
    (((_, rank), record),) = recorded(job).items()
    assert rank == 1
    assert_as_by_hand(record, by_hand(ALL))


def test_each_rank_of_a_pipeline_records_its_stages(make_job: MakeJob) -> None:
    job = make_job(fixed_job(resources={"nodes": 2}, gradients={"steps": [1]}, **PIPELINE))
    assert [end.exit_code for end in job.run(2)] == [0, 0]
    found, whole = recorded(job), by_hand(ALL)
    names = [each.name for rank in (0, 1) for each in found[1, rank].parameters]
    assert names == list(whole)
    for rank in (0, 1):
        assert_as_by_hand(found[1, rank], {each.name: whole[each.name] for each in found[1, rank].parameters})


def test_shards_are_of_the_sum_and_say_so(make_job: MakeJob) -> None:
    job = make_job(fixed_job(resources={"nodes": 2}, gradients={"steps": [1]}, **FSDP))
    assert [end.exit_code for end in job.run(2)] == [0, 0]
    found = recorded(job)
    for name, gradient in by_hand(ALL).items():
        shards = [each for rank in (0, 1) for each in found[1, rank].parameters if each.name == name]
        assert all(each.sharded for each in shards)
        assert sum(each.elements for each in shards) == gradient.numel()
        assert sum((each.norm or 0.0) ** 2 for each in shards) ** 0.5 == pytest.approx(gradient.norm().item(), rel=1e-5)


def test_the_loss_scale_of_fp16_is_taken_out(make_job: MakeJob) -> None:
    """Until the scale is small enough gradients overflow, and the parameters stay as they are."""
    job = make_job(fixed_job(gradients={"every": 1, "names": ["2.weight"]}, precision="fp16"))
    assert job.run(1)[0].exit_code == 0
    found = {step: record.parameters[0] for (step, _), record in recorded(job).items()}
    first = next(step for step in sorted(found) if found[step].norm is not None)
    assert all(found[step].nans + found[step].infs > 0 for step in range(1, first))
    assert found[first].norm == pytest.approx(by_hand(ALL, first)["2.weight"].norm().item(), rel=0.05)


@pytest.mark.parametrize("plan", [REPRODUCIBLE, DDP, FSDP], ids=["reproducible", "ddp", "fsdp"])
def test_recording_changes_no_bit(make_job: MakeJob, plan: dict[str, Any]) -> None:
    quiet = make_job(fixed_job(resources={"nodes": 2}, **plan), "quiet")
    watched = make_job(fixed_job(resources={"nodes": 2}, gradients={"every": 1, "snapshots": True}, **plan), "watched")
    curves = [job.run(2)[0].curve("loss") for job in (quiet, watched)]
    assert curves[0] == curves[1]
    one, other = final_state(quiet), final_state(watched)
    assert all(one[name].equal(other[name]) for name in one)


def test_the_record_names_the_rank_with_nan_though_the_job_stops(make_job: MakeJob) -> None:
    job = make_job(fixed_job("nan_at_rank_1", resources={"nodes": 2}, gradients={"steps": [1]}, fault_tolerance={"on_nan": "stop"}))
    assert all(end.exit_code for end in job.run(2))
    found = recorded(job)
    assert all(each.nans == 0 for each in found[1, 0].parameters)
    assert {each.name: each.norm for each in found[1, 1].parameters if each.nans} == dict.fromkeys(by_hand(ALL))


def test_snapshots_are_the_gradients_of_the_chosen_names(make_job: MakeJob) -> None:
    job = make_job(fixed_job(resources={"nodes": 2}, gradients={"steps": [2, 1], "names": ["*.weight"], "snapshots": True}, **REPRODUCIBLE))
    assert [end.exit_code for end in job.run(2)] == [0, 0]
    for rank, micro_batches in OF_RANK.items():
        (file,) = job.folder.glob(f"**/rank{rank}/artifacts/snapshot-step-1")
        found = torch.load(file, weights_only=True)
        expected = {name: gradient for name, gradient in by_hand(micro_batches).items() if name.endswith("weight")}
        assert found.keys() == expected.keys()
        assert all(torch.allclose(found[name], gradient, rtol=1e-5) for name, gradient in expected.items())


def test_a_step_that_lost_a_rank_is_recorded_by_the_generation_that_does_it_again(make_job: MakeJob, tmp_path: Path) -> None:
    """The survivor has its own micro-batches from before and the dead rank's from now: all of them are in the record."""
    fault = Fault(1, 3, moment="exchange")
    broken, whole = (
        make_job(faulty_job(tmp_path / f"{name}-code", *faults, steps=4, gradients={"steps": [3]}), name)
        for name, faults in (("broken", [fault]), ("whole", []))
    )
    gang = broken.start(2)
    gang.agent.until(1, 0, Broken)
    gang.close_up(0)
    assert [end.exit_code for end in gang.wait()] == [0, -9]
    assert whole.run(1)[0].exit_code == 0
    again, undisturbed = recorded(broken, 2)[3, 0], recorded(whole)[3, 0]
    assert recorded(broken) == {}
    assert [each.norm for each in again.parameters] == pytest.approx([each.norm for each in undisturbed.parameters], rel=1e-5)


def test_a_pattern_of_no_parameter_ends_the_job_with_names_that_there_are(make_job: MakeJob) -> None:
    (end,) = make_job(fixed_job(gradients={"steps": [1], "names": ["0.*", "head.*"]})).run(1)
    assert end.result is not None
    assert end.result.failure is not None
    assert end.result.failure.kind == "invalid_input"
    assert (
        "gradients.names: no trainable parameter matches 'head.*'; of the 6 that rank 0 has: 0.weight, 0.bias, 2.weight"
        in end.result.failure.message
    )


@pytest.mark.parametrize(
    ("fields", "total_steps", "words"),
    [
        ({"every": 1}, 1001, "gradients chooses 1,001 of 1,001 steps; at most 1,000 are recorded: use every=2 or more"),
        ({"every": 5, "snapshots": True}, 101, None),
        ({"every": 5, "snapshots": True}, 105, "at most 20 are kept as snapshots: use every=6 or more"),
        ({"steps": [1], "snapshots": True}, 10, "at most 67,108,864 are kept of each step: choose fewer names, or leave snapshots out"),
    ],
)
def test_what_is_too_much_is_told_with_the_limit_and_the_way_out(fields: dict[str, Any], total_steps: int, words: str | None) -> None:
    large = nn.Parameter(torch.empty(1 << 25, device="meta")) if "steps" in fields else nn.Parameter(torch.empty(3))
    reason = why_too_much(Gradients.model_validate(fields), {large: "weight"}, total_steps)
    assert reason is None if words is None else words in str(reason)


# --- on request


def ask(gang: RunningGang, *ranks: int, names: tuple[str, ...] = ("*",), snapshots: bool = False) -> None:
    for rank in ranks:
        gang.agent.until(1, rank, Joined)
        gang.agent.ask(gang.identities[rank], GradientsRequest(id="asked", names=names, snapshots=snapshots))


def answers(job: Job, *kinds: str) -> dict[int, dict[str, RankArtifact]]:
    """What each rank has left for the request, by kind."""
    found: dict[int, dict[str, RankArtifact]] = {}
    for note in job.folder.glob(f"**/g1/rank*/artifacts/*{NOTE_SUFFIX}"):
        artifact = msgspec.json.decode(note.read_bytes(), type=RankArtifact)
        if artifact.request is not None:
            found.setdefault(int(note.parents[1].name.removeprefix("rank")), {})[artifact.kind] = artifact
    return {rank: each for rank, each in found.items() if set(kinds) <= set(each)}


def answered(job: Job, gang: RunningGang, *kinds: str, ranks: int = 2) -> dict[int, dict[str, RankArtifact]]:
    """Wait until all ranks have answered, and pause the job."""
    wait_until(lambda: len(answers(job, *kinds)) == ranks, "the answers", seconds=RANK_TIMEOUT_SECONDS)
    for identity in gang.identities:
        gang.agent.ask(identity, PauseRequest())
    assert {end.result.outcome for end in gang.wait() if end.result} == {"paused"}
    return answers(job)


def endless(steps: int = 1_000_000, **changes: Any) -> dict[str, Any]:
    """Its parameters stay as they are, so that each step's gradients can be computed by hand."""
    job = fixed_job(optimizer={"kind": "sgd", "lr": 1e-30}, **changes)
    return job | {"training": job["training"] | {"steps": steps}}


@pytest.mark.parametrize("plan", [REPRODUCIBLE, DDP], ids=["reproducible", "ddp"])
def test_all_ranks_of_a_running_job_record_the_same_step_once_all_of_them_are_asked(make_job: MakeJob, plan: dict[str, Any]) -> None:
    job = make_job(endless(resources={"nodes": 2}, **plan))
    gang = job.start(2)
    ask(gang, 0)
    begun = gang.agent.until(1, 0, Progress).step
    gang.agent.until(1, 0, Progress, lambda told: told.step > begun + 1)
    assert answers(job) == {}
    for _ in range(3):
        ask(gang, 0, 1)
    found = answered(job, gang, "gradients")
    (step,) = {each["gradients"].first_step for each in found.values()}
    assert step > begun
    records = recorded(job)
    assert sorted(records) == [(step, 0), (step, 1)]
    for rank, micro_batches in OF_RANK.items():
        assert_as_by_hand(records[step, rank], by_hand(micro_batches, step))


def test_what_is_asked_for_and_what_the_spec_chooses_are_in_one_record_of_a_step(make_job: MakeJob) -> None:
    job = make_job(endless(1000, gradients={"every": 1, "names": ["0.*"], "bins": 32}))
    gang = job.start(1)
    ask(gang, 0, names=("2.weight",), snapshots=True)
    step = answered(job, gang, "gradients", "snapshot", ranks=1)[0]["snapshot"].first_step
    records = recorded(job)
    assert [each.name for each in records[step, 0].parameters] == ["0.weight", "0.bias", "2.weight"]
    assert {each.name for each in records[step - 1, 0].parameters} == {"0.weight", "0.bias"}
    (file,) = job.folder.glob("**/rank0/artifacts/snapshot-*[0-9]")
    kept = torch.load(file, weights_only=True)
    assert kept.keys() == {"2.weight"}
    assert torch.allclose(kept["2.weight"], by_hand(ALL, step)["2.weight"], rtol=1e-4)


@pytest.mark.parametrize(
    ("names", "plan", "words"),
    [
        (
            ("head.*", "tail.*"),
            DDP,
            ["no trainable parameter matches head.*, tail.*; of the 6 that this rank has: 0.weight, 0.bias, 2.we"] * 2,
        ),
        (("*",), SERVER, ["this rank has computed no micro-batch of step", None]),
        (("0.*",), PIPELINE, [None, "no trainable parameter matches 0.*; of the "]),
    ],
)
def test_a_rank_that_has_nothing_to_record_says_why(
    make_job: MakeJob, names: tuple[str, ...], plan: dict[str, Any], words: list[str | None]
) -> None:
    job = make_job(endless(resources={"nodes": 2}, **plan))
    gang = job.start(2)
    ask(gang, 0, 1, names=names)
    found = answered(job, gang, "gradients")
    for rank, expected in enumerate(words):
        error = found[rank]["gradients"].error
        assert error is None if expected is None else expected in str(error)


def test_what_was_asked_of_an_earlier_generation_is_not_recorded(tmp_path: Path) -> None:
    class Rank:
        gradients_wanted: GradientsRequest | None = GradientsRequest(id="of g1", names=("*",), snapshots=False)

        def leave_step(self) -> None:
            raise AssertionError("nothing is recorded")

    state = SimpleNamespace(device=torch.device("cpu"), model=nn.Linear(2, 1))
    rank = Rank()
    recorder = GradientRecorder(None, {}, cast("TrainState", state), tmp_path, rank)
    assert not recorder.wanted
    rank.gradients_wanted = GradientsRequest(id="of g2", names=("*",), snapshots=False)
    assert recorder.wanted
    recorder.record_next()
    assert not recorder.wanted
