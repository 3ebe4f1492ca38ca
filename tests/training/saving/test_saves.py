"""Saves that are written behind steps: the same checkpoints, waited for where they must be, and said what they cost."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from paceline.training.errors import CheckpointSaveError
from paceline.training.link import PauseRequest
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.saving import checkpoint, writers
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import clear_debris, open_directory
from paceline.training.saving.saves import Saves
from paceline.training.saving.uncommitted import snapshot_state
from paceline.training.saving.writers import BackgroundWriter, BlockingWriter
from paceline.training.state import StepReport
from paceline.training.timing.activity import Activity
from paceline.training.timing.phase_times import PhaseTimes
from scripts.torture.saver import checkpoints_at, digest, state_at
from tests.faults import Fault, faulty_job, states
from tests.gangs import RunningGang
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from tests.waiting import wait_until

TIMEOUT_SECONDS = 60.0
HOUR = 3600.0
EVERY = 4
HELD = Fault(1, step=EVERY, kind="hold", moment="write")


def saving(world_size: int = 1, *, behind: bool, **changes: Any) -> dict[str, Any]:
    return tiny_gpt(world_size) | {"checkpoint": {"every_steps": EVERY, "asynchronous": behind}} | changes


def fingerprints(folder: Path) -> dict[int, str | None]:
    found = [manifests.read(path) for path in folder.glob("step-*")]
    return {manifest.step: manifest.parameters_sha256 for manifest in found}


@pytest.mark.parametrize(
    "parallelism", [{"strategy": "single"}, {"strategy": "ddp"}, {"strategy": "fsdp"}, {"strategy": "ddp", "reproducible": False}]
)
def test_losses_and_checkpoints_are_those_of_a_run_that_waits(make_job: MakeJob, parallelism: dict[str, Any]) -> None:
    """To the last bit."""
    world_size = 1 if parallelism["strategy"] == "single" else 2
    changes = {"parallelism": {"strategy": parallelism["strategy"]}, "reproducible": parallelism.get("reproducible")}
    ends, found = [], []
    for behind in (False, True):
        job = make_job(saving(world_size, behind=behind, **changes), f"behind {behind}")
        ends.append(job.run(world_size)[0])
        found.append(fingerprints(job.checkpoints))
    assert [end.exit_code for end in ends] == [0, 0], ends[1].output
    assert ends[0].curve("loss") == ends[1].curve("loss")
    assert found[0] == found[1]
    assert sorted(found[1]) == [4, 8, 12]


def held_job(make_job: MakeJob, code: Path, *, nodes: int = 2, **changes: Any) -> RunningGang:
    """Its ranks have come as far as they can while rank 1 is held as it writes the checkpoint of step 4."""
    job = make_job(faulty_job(code, HELD, nodes=nodes, **({"checkpoint": {"every_steps": EVERY}} | changes)))
    gang = job.start(nodes)
    wait_until((code / HELD.done).exists, "the hold", seconds=TIMEOUT_SECONDS)
    return gang


def reached(code: Path, step: int) -> bool:
    return step in states(code)


def committed(gang: RunningGang) -> list[int]:
    return [event["step"] for event in gang.wait()[0].events_of("checkpoint_committed")]


def test_what_is_saved_is_the_step_that_was_due_whatever_ran_meanwhile(make_job: MakeJob, tmp_path: Path) -> None:
    straight = make_job(faulty_job(tmp_path / "straight", checkpoint={"every_steps": EVERY, "asynchronous": False}), "waits")
    straight.run(2)
    gang = held_job(make_job, tmp_path / "code")
    wait_until(lambda: reached(tmp_path / "code", 2 * EVERY), "the next save that is due", seconds=TIMEOUT_SECONDS)
    assert gang.job.newest_first() == ()
    HELD.release(tmp_path / "code")
    assert committed(gang) == [4, 8, 12]
    assert max(map(len, states(tmp_path / "code").values())) == 1
    assert fingerprints(gang.job.checkpoints) == fingerprints(straight.checkpoints)


def test_a_pause_waits_for_the_save_under_way_and_for_its_own(make_job: MakeJob, tmp_path: Path) -> None:
    gang = held_job(make_job, tmp_path / "code", steps=500)
    for identity in gang.identities:
        gang.agent.ask(identity, PauseRequest())
    HELD.release(tmp_path / "code")
    ends = gang.wait()
    assert [end.result.outcome for end in ends if end.result] == ["paused", "paused"]
    (last,) = {end.result.step for end in ends if end.result}
    steps = [event["step"] for event in ends[0].events_of("checkpoint_committed")]
    assert steps == [*range(EVERY, last, EVERY), last]


def test_who_leaves_at_a_boundary_has_written_what_was_under_way(make_job: MakeJob, tmp_path: Path) -> None:
    gang = held_job(make_job, tmp_path / "code")
    gang.resize(0)
    gang.release(1)
    HELD.release(tmp_path / "code")
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output
    before, after = ends[0].events_of("checkpoint_committed"), gang.left(2, 0).events_of("checkpoint_committed")
    assert (before[0]["generation"], before[0]["step"]) == (1, EVERY)
    assert [event["step"] for event in before] + [event["step"] for event in after if event["generation"] == 2] == [4, 8, 12]


def test_who_waits_for_a_disk_that_hangs_is_freed_when_another_rank_dies(make_job: MakeJob, tmp_path: Path) -> None:
    gang = held_job(make_job, tmp_path / "code")
    wait_until(lambda: reached(tmp_path / "code", 2 * EVERY), "the next save that is due", seconds=TIMEOUT_SECONDS)
    gang.kill(0)
    gang.close_up(1)
    gang.processes[1].join(TIMEOUT_SECONDS)
    assert not gang.processes[1].is_alive()  # it has come to its end while the disk still hangs
    HELD.release(tmp_path / "code")
    assert [end.exit_code for end in gang.wait()] == [-9, 0], gang.left(2, 0).output
    after = gang.left(2, 0)
    assert [event["step"] for event in after.events_of("checkpoint_committed")] == [8, 12]
    assert not list(gang.job.checkpoints.glob("*.tmp"))


def test_each_tells_what_it_cost(make_job: MakeJob, tmp_path: Path) -> None:
    """Each is held until a step has ended beside it."""
    code, holds = tmp_path / "code", [Fault(0, step=step, kind="hold", moment="write") for step in (EVERY, 2 * EVERY)]
    gang = make_job(faulty_job(code, *holds, nodes=1, checkpoint={"every_steps": EVERY})).start(1)
    for hold in holds:
        wait_until((code / hold.done).exists, "the hold", seconds=TIMEOUT_SECONDS)
        wait_until(lambda step=hold.step + 2: reached(code, step), "steps meanwhile", seconds=TIMEOUT_SECONDS)
        hold.release(code)
    (end,) = gang.wait()
    events = end.events_of("checkpoint_committed")
    assert [event["step"] for event in events] == [EVERY, 2 * EVERY, 3 * EVERY]
    assert all(event["stall_seconds"] > 0 and event["write_seconds"] > 0 for event in events)
    assert all(event["slowdown"] > 0 for event in events[:-1])
    assert events[-1]["slowdown"] is None  # the run waits for the last one
    assert "MB: training waited" in end.output


class Held:
    """Copies, and a disk that answers nothing until it is told to."""

    waits = False

    def __init__(self) -> None:
        self.futures: list[tuple[Any, Future[Any]]] = []
        self._copies = BackgroundWriter(1, print)

    def snapshot(self, values: writers.Values) -> writers.Values:
        return self._copies.snapshot(values)

    def submit(self, work: Any) -> Future[Any]:
        self.futures.append((work, Future()))
        return self.futures[-1][1]

    def answer(self) -> None:
        work, future = self.futures.pop()
        future.set_result(work())

    def close(self) -> None:
        self._copies.close()


class Said:
    """A rank's telemetry."""

    def __init__(self) -> None:
        self.activity = Activity(PhaseTimes())
        self.lines: list[str] = []
        self.events: list[str] = []

    def event(self, kind: str, **data: Any) -> None:
        self.events.append(kind)

    def log(self, text: str) -> None:
        self.lines.append(text)

    def flush(self) -> None:
        self.events.append("flushed")


def report(step: int, *outcomes: int) -> StepReport:
    """A step, after which all ranks had done their work if `outcomes` are given."""
    return StepReport(step, 1.0, 1.0, 0.1, 0, 8, 0.1, {}, pause=False, checkpoint=False, leave=False, time=0.0, outcomes=outcomes or None)


@pytest.mark.parametrize(("hours_ago", "lines"), [(0, []), (2, ["WARNING checkpoint of step 1 is not written by all ranks after"])])
def test_a_disk_that_hangs_is_said_once(tmp_path: Path, hours_ago: int, lines: list[str]) -> None:
    checkpoints, said, disk = checkpoints_at(tmp_path / "job", 1), Said(), Held()
    open_directory(checkpoints, ())
    for seconds in (250.0, 300.0):
        said.activity.times.saved(seconds)
    saves = Saves(checkpoints, state_at(1), cast("Telemetry", said), disk)
    saves.begin({}, required=False, since=time.monotonic() - HOUR * hours_ago)
    for step in (2, 3):
        saves.after_step(report(step))
    assert [line.partition(" 7")[0] for line in said.lines] == lines  # 7200 s, or a little more
    for step in (4, 5, 6):
        assert saves.outcome_bytes is None
        disk.answer()
        assert saves.outcome_bytes is not None
        saves.after_step(report(step, saves.outcome_bytes))
    assert said.events == ["flushed", "checkpoint_committed"]
    assert not saves.unfinished


class Full(BackgroundWriter):
    """A machine without memory for copies."""

    def __init__(self) -> None:
        super().__init__(1, print)

    def snapshot(self, values: writers.Values) -> writers.Values:
        raise MemoryError("no memory for copies")


@pytest.mark.parametrize("required", [False, True])
def test_a_snapshot_that_fails_is_reported_where_all_ranks_learn_of_it(tmp_path: Path, required: bool) -> None:
    checkpoints, said, writer = checkpoints_at(tmp_path / "job", 1), Said(), Full()
    open_directory(checkpoints, ())
    saves = Saves(checkpoints, state_at(1), cast("Telemetry", said), writer)
    with pytest.raises(CheckpointSaveError, match="no memory for copies") if required else contextlib.nullcontext():
        saves.begin({}, required=required, since=time.monotonic())
    if not required:
        for step in (2, 3, 4):
            saves.after_step(report(step, 1))
    assert said.events == ["flushed", "checkpoint_failed"]
    assert any("no memory for copies" in line for line in said.lines)
    assert list((tmp_path / "job").glob("step-*")) == []


def test_a_save_that_broke_off_and_cannot_begin_again_is_told_once(tmp_path: Path) -> None:
    """The disk refuses a folder: the next save that is due tries again, not every step."""
    (tmp_path / "job").write_text("no folder")
    state, said = state_at(1), Said()
    state.save_unfinished = True
    saves = Saves(checkpoints_at(tmp_path / "job", 2), state, cast("Telemetry", said), BlockingWriter())
    saves.begin({}, required=False, since=time.monotonic())
    assert said.events == ["checkpoint_failed"]
    assert not saves.unfinished


@pytest.mark.parametrize("stage", ["writes", "publishes"])
def test_who_writes_for_a_generation_that_is_over_publishes_nothing(tmp_path: Path, stage: str) -> None:
    old, new = checkpoints_at(tmp_path / "job", 1), checkpoints_at(tmp_path / "job", 2)
    open_directory(old, ())
    late = snapshot_state(old, state_at(1), {}, BlockingWriter().snapshot)
    written = [late.write()] if stage == "publishes" else []
    clear_debris(new)
    with pytest.raises((CheckpointSaveError, FileNotFoundError)):
        late.publish(written) if written else late.write()
    assert list((tmp_path / "job").glob("step-*")) == []


def test_a_snapshot_is_of_its_moment(tmp_path: Path) -> None:
    """Whatever is done to the state before it is written."""
    checkpoints, state = checkpoints_at(tmp_path / "job", 1), state_at(1)
    open_directory(checkpoints, ())
    behind = BackgroundWriter(1, print)
    early = snapshot_state(checkpoints, state, {}, behind.snapshot)
    for parameter in state.task.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    state.optimizer.step()
    published = early.publish([early.write()])
    found = state_at(0)
    assert isinstance(published.directory, Path)
    checkpoint.load(checkpoints.group, found, published.directory, checkpoint.verify(checkpoints.group, published.directory))
    assert digest(found) == digest(state_at(1))
    behind.close()


def test_one_that_is_deleted_while_the_folder_is_looked_through_disturbs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent renames it, just after its manifest was read."""
    checkpoints = checkpoints_at(tmp_path / "job", 1)
    open_directory(checkpoints, ())
    saved = [checkpoint.save(checkpoints, state_at(step), {}) for step in (1, 2)]
    decoded = manifests.decoded

    def decode_and_rename(content: bytes, folder: Path, name: str) -> manifests.Manifest:
        if name == "step-1.g1":
            folder.rename(folder.with_name(f"{name}{manifests.GONE}"))
        return decoded(content, folder, name)

    monkeypatch.setattr(manifests, "decoded", decode_and_rename)
    found = checkpoint.unreported(checkpoints, ())
    assert found[-1] == saved[-1]
