"""Checkpoints in an object store are whole or not there, whatever the store does and whatever ends the rank that saves."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from paceline.distributed.solo_group import SoloGroup
from paceline.objects.client import Patience
from paceline.objects.location import parse
from paceline.training import restoring
from paceline.training.errors import (
    CheckpointCorruptError,
    CheckpointSaveError,
    CheckpointUnreachableError,
    InvalidInputError,
    NoUsableCheckpointError,
)
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.saving import checkpoint, object_manifests
from paceline.training.saving.checkpoint_directory import CheckpointDirectory, clear_debris, open_directory, require_visible
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.object_storage import ObjectStorage
from paceline.training.saving.pending_save import PendingSave
from paceline.training.saving.uncommitted import snapshot_state
from paceline.training.saving.writers import BackgroundWriter, BlockingWriter
from scripts.torture.damage import Said
from scripts.torture.saver import SPEC, digest, state_at
from tests.object_store import BUCKET, CREDENTIALS, FaultyStore, Request, object_store
from tests.ranks import PROCESSES
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

QUICK = Patience(connect_seconds=5.0, request_seconds=20.0, retry_seconds=10.0, retries=3)
STEP_FOLDER = "job/step-{}.g{}/"


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for key in server.names():
        server.remove(key)
    server.calm()
    server.held.clear()
    server.released.clear()
    yield server
    server.calm()


def checkpoints_in(store: Mapping[str, str], staging: Path, generation: int = 1) -> CheckpointDirectory:
    storage = ObjectStorage(parse(f"s3://{BUCKET}/job"), store, staging, generation, 0, QUICK)
    return CheckpointDirectory(storage, "job", generation, SPEC, SoloGroup())


def opened(store: FaultyStore, staging: Path, generation: int = 1) -> CheckpointDirectory:
    checkpoints = checkpoints_in(store.options, staging, generation)
    open_directory(checkpoints, ())
    store.seen.clear()
    return checkpoints


def restored(checkpoints: CheckpointDirectory, *candidates: CommittedCheckpoint) -> tuple[Said, str]:
    said, state = Said(), state_at(0)
    places = [each.directory for each in candidates]
    restoring.restore(checkpoints, places, state, cast("Telemetry", said), required=True)
    return said, digest(state)


def test_a_checkpoint_is_the_same_on_another_machine(store: FaultyStore, tmp_path: Path) -> None:
    here = opened(store, tmp_path / "here")
    saved = checkpoint.save(here, state_at(3), {"loss": 0.5})
    assert str(saved.directory) == f"s3://{BUCKET}/job/step-3.g1"
    assert not [path for path in (tmp_path / "here").rglob("*") if path.is_file()]  # nothing stays on the node
    there = opened(store, tmp_path / "there", 2)
    (found,) = checkpoint.unreported(there, ())
    assert found.announcement == saved.announcement
    assert checkpoint.unreported(there, {str(saved.directory)}) == []
    said, state = restored(there, found)
    assert said.events == [("checkpoint_restored", "step-3.g1")]
    assert state == digest(state_at(3))
    assert not [path for path in (tmp_path / "there").rglob("*") if path.is_file()]


def test_the_manifest_is_the_last_request_of_a_save_that_changes_anything(store: FaultyStore, tmp_path: Path) -> None:
    checkpoint.save(opened(store, tmp_path), state_at(1), {})
    changes = [request.path.rpartition("/")[2] for request in store.seen if request.method in ("PUT", "POST", "DELETE")]
    assert changes[-1] == "manifest.json"
    assert changes.count("manifest.json") == 1


def test_a_manifest_of_more_bytes_than_one_can_have_is_not_read(
    store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = checkpoint.save(opened(store, tmp_path), state_at(1), {})
    monkeypatch.setattr("paceline.training.saving.object_manifests.MAX_MANIFEST_BYTES", 100)
    with pytest.raises(CheckpointCorruptError, match="of 100 at most"):
        object_manifests.read(parse(str(saved.directory)), store.options, QUICK)


def test_large_files_go_up_in_parts(store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.objects.client.PART_BYTES", 5 << 20)
    monkeypatch.setattr("scripts.torture.saver.WIDTH", 900)
    checkpoints = opened(store, tmp_path)
    saved = checkpoint.save(checkpoints, state_at(1), {})
    assert sum("partNumber=" in request.path for request in store.seen) > 1
    assert restored(checkpoints, saved)[1] == digest(state_at(1))


def test_a_store_that_fails_now_and_then_is_asked_again(store: FaultyStore, tmp_path: Path) -> None:
    checkpoints = opened(store, tmp_path)
    failed: set[str] = set()

    def once_each(request: Request) -> str | None:
        first = request.path not in failed
        failed.add(request.path)
        return ("fail", "drop")[request.number % 2] if first else None

    store.fault = once_each
    saved = checkpoint.save(checkpoints, state_at(2), {})
    store.calm()
    assert restored(checkpoints, saved)[1] == digest(state_at(2))


@pytest.mark.parametrize("part", [".distcp", ".metadata", "manifest.json"])
@pytest.mark.parametrize("fault", ["fail", "forget"])
def test_a_store_that_keeps_failing_costs_this_save_and_not_the_next(store: FaultyStore, tmp_path: Path, part: str, fault: str) -> None:
    checkpoints = opened(store, tmp_path)
    older = checkpoint.save(checkpoints, state_at(1), {})
    store.fault = lambda request: fault if request.is_for("PUT", part) else None
    with pytest.raises(CheckpointSaveError, match="acknowledged it 3 times" if fault == "forget" else "503"):
        checkpoint.save(checkpoints, state_at(2), {})
    store.calm()
    assert store.names("job/step-2") == []
    assert [each.directory for each in checkpoint.unreported(checkpoints, ())] == [older.directory]
    newer = checkpoint.save(checkpoints, state_at(3), {})
    assert restored(checkpoints, newer, older)[1] == digest(state_at(3))


def test_a_store_that_forgets_once_gets_the_file_again(store: FaultyStore, tmp_path: Path) -> None:
    checkpoints, forgotten = opened(store, tmp_path), list[str]()

    def forget(request: Request) -> str | None:
        if request.method != "PUT" or request.path in forgotten:
            return None
        forgotten.append(request.path)
        return "forget"

    store.fault = forget
    saved = checkpoint.save(checkpoints, state_at(2), {})
    assert len(forgotten) == 3
    assert restored(checkpoints, saved)[1] == digest(state_at(2))


def test_steps_go_on_while_a_store_stalls(store: FaultyStore, tmp_path: Path) -> None:
    checkpoints, writer = opened(store, tmp_path), BackgroundWriter(1, print)
    store.fault = lambda request: "hold" if request.is_for("PUT", ".distcp") else None
    started, state = time.monotonic(), state_at(2)
    expected = digest(state)
    pending = PendingSave(checkpoints.group, snapshot_state(checkpoints, state, {}, writer.snapshot), writer)
    assert store.held.wait(30)
    assert pending.outcome_bytes is None
    for parameter in state.task.model.parameters():  # what steps do meanwhile
        parameter.data.zero_()
    store.calm()
    while (committed := pending.advance()) is None:
        pass
    assert restored(checkpoints, committed)[1] == expected
    assert time.monotonic() - started < 60
    writer.close()


@pytest.mark.parametrize("lost", [".distcp", ".metadata", "manifest.json"])
def test_an_object_that_the_store_has_lost_costs_its_checkpoint_alone(store: FaultyStore, tmp_path: Path, lost: str) -> None:
    checkpoints = opened(store, tmp_path)
    older, newer = (checkpoint.save(checkpoints, state_at(step), {}) for step in (1, 2))
    store.remove(next(key for key in store.names("job/step-2") if key.endswith(lost)))
    assert [each.directory for each in checkpoint.unreported(checkpoints, ())] == [older.directory]
    said, state = restored(checkpoints, newer, older)
    assert said.events == [("checkpoint_damaged", "step-2.g1"), ("checkpoint_restored", "step-1.g1")]
    assert state == digest(state_at(1))


@pytest.mark.parametrize("spoiled", [".distcp", ".metadata", "manifest.json"])
def test_a_flipped_bit_in_the_store_is_found_before_anything_is_loaded(store: FaultyStore, tmp_path: Path, spoiled: str) -> None:
    checkpoints = opened(store, tmp_path)
    older, newer = (checkpoint.save(checkpoints, state_at(step), {}) for step in (1, 2))
    store.flip_a_bit(next(key for key in store.names("job/step-2") if key.endswith(spoiled)))
    said, state = restored(checkpoints, newer, older)
    assert said.events == [("checkpoint_damaged", "step-2.g1"), ("checkpoint_restored", "step-1.g1")]
    assert state == digest(state_at(1))
    with pytest.raises(NoUsableCheckpointError, match="tried s3://bucket/job/step-2"):
        restored(checkpoints, newer)


def test_damage_on_the_way_down_is_mended_by_another_try(store: FaultyStore, tmp_path: Path) -> None:
    checkpoints = opened(store, tmp_path)
    saved, damaged = checkpoint.save(checkpoints, state_at(2), {}), list[str]()

    def damage(request: Request) -> str | None:
        if not request.is_for("GET", ".distcp") or damaged:
            return None
        damaged.append(request.path)
        return "damage"

    store.fault = damage
    assert restored(checkpoints, saved)[1] == digest(state_at(2))
    assert damaged


def test_another_store_in_its_place_is_no_damage(store: FaultyStore, tmp_path: Path) -> None:
    """A wrong AWS_ENDPOINT_URL would have marked every checkpoint of the job as damaged."""
    checkpoints = opened(store, tmp_path)
    saved = checkpoint.save(checkpoints, state_at(2), {})
    for key in store.names("job/"):
        store.remove(key)
    said = Said()
    with pytest.raises(CheckpointUnreachableError, match="no checkpoint can be read here"):
        restoring.restore(checkpoints, [saved.directory], state_at(0), cast("Telemetry", said), required=True)
    assert said.events == []


def test_training_does_not_wait_until_what_was_staged_before_is_removed(store: FaultyStore, tmp_path: Path) -> None:
    """It took a millisecond, of six that training waited in all."""
    checkpoints = opened(store, tmp_path)
    early, late = (snapshot_state(checkpoints, state_at(step), {}, BlockingWriter().snapshot, agree=step == 1) for step in (1, 2))
    assert early.target.scratch.exists()
    late.write()
    assert [each.name for each in late.target.scratch.parent.iterdir()] == ["step-2.g1.tmp"]
    shutil.rmtree(tmp_path)
    debris = checkpoints.storage.target("step-3.g1").scratch / "__0_7.distcp"  # of a save that failed
    debris.parent.mkdir(parents=True)
    debris.touch()
    for step in (3, 4):
        committed = snapshot_state(checkpoints, state_at(step), {}, BlockingWriter().snapshot, agree=False)
        assert debris.name not in committed.publish([committed.write()]).manifest.files


@pytest.mark.parametrize("stage", ["writes", "publishes"])
def test_who_saves_for_a_generation_that_is_over_commits_nothing(store: FaultyStore, tmp_path: Path, stage: str) -> None:
    old, new = opened(store, tmp_path), checkpoints_in(store.options, tmp_path / "other", 2)
    late = snapshot_state(old, state_at(1), {}, BlockingWriter().snapshot)
    if stage == "publishes":
        written = [late.write()]
        clear_debris(new)
        with pytest.raises(CheckpointSaveError, match="the store does not have it"):
            late.publish(written)
    else:
        clear_debris(checkpoints_in(store.options, tmp_path, 2))  # on the same node
        with pytest.raises((CheckpointSaveError, FileNotFoundError)):
            late.write()
    assert checkpoint.unreported(new, ()) == []


def save_once(options: Mapping[str, str], staging: str, generation: int, step: int, pipe: Any) -> None:
    os.environ.update(CREDENTIALS)
    checkpoints = checkpoints_in(options, Path(staging), generation)
    open_directory(checkpoints, ())
    pipe.send("ready")
    pipe.recv()
    pipe.send(str(checkpoint.save(checkpoints, state_at(step), {}).directory))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_rank_killed_at_each_request_of_a_save_leaves_a_whole_checkpoint_or_debris(
    store: FaultyStore, tmp_path: Path, moment: str
) -> None:
    """kill -9 before and after the store has done what each single request asks for."""
    first = checkpoint.save(opened(store, tmp_path), state_at(1), {})
    requests = len(store.seen)
    assert requests > 4
    best = 1
    for number in range(1, requests + 1):
        generation, step = 1 + number, 1 + number
        ours, theirs = PROCESSES.Pipe()
        saver = PROCESSES.Process(target=save_once, args=(store.options, str(tmp_path / "saver"), generation, step, theirs))
        saver.start()
        assert ours.poll(60)
        ours.recv()
        store.seen.clear()

        def strike(request: Request, at: int = number, victim: Any = saver) -> None:
            if request.number == at:
                os.kill(victim.pid, signal.SIGKILL)

        if moment == "before":
            store.fault = lambda request, kill=strike, at=number: kill(request) or ("drop" if request.number == at else None)
        else:
            store.after = strike
        ours.send("go")
        saver.join(60)
        store.calm()
        there = checkpoint.unreported(checkpoints_in(store.options, tmp_path / "look"), ())
        steps = {each.manifest.step for each in there}
        assert 1 in steps
        assert steps >= {best}  # nothing that was whole is ever lost
        for found in there:
            if found.manifest.step == step:
                best = step
                assert restored(checkpoints_in(store.options, tmp_path / "look"), found)[1] == digest(state_at(step))
    assert restored(opened(store, tmp_path / "next", 99), first)[1] == digest(state_at(1))
    folders = {key.split("/")[1] for key in store.names("job/step-")}
    whole = {each.directory.name for each in checkpoint.unreported(checkpoints_in(store.options, tmp_path), ())}
    assert folders == whole  # debris is cleared by the next generation


def test_half_a_deletion_is_debris(store: FaultyStore, tmp_path: Path) -> None:
    checkpoints = opened(store, tmp_path)
    saved = checkpoint.save(checkpoints, state_at(1), {})
    store.fault = lambda request: "fail" if request.number > 2 else None  # the list, and the manifest's deletion
    store.seen.clear()
    with pytest.raises(OSError, match="503"):
        object_manifests.delete(checkpoints.storage.client, saved.directory.name)  # type: ignore[attr-defined]
    store.calm()
    assert checkpoint.unreported(checkpoints, ()) == []
    opened(store, tmp_path, 2)
    assert store.names("job/step-") == []


def test_a_bucket_that_is_not_there_is_refused_before_the_first_step(store: FaultyStore, tmp_path: Path) -> None:
    storage = ObjectStorage(parse("s3://no-such-bucket/a/job"), store.options, tmp_path, 1, 0, QUICK)
    with pytest.raises(
        InvalidInputError, match=r"checkpoint.directory=s3://no-such-bucket/a cannot be written .* does not exist, create it"
    ) as refusal:
        open_directory(CheckpointDirectory(storage, "job", 1, SPEC, SoloGroup()), ())
    assert "credentials" not in str(refusal.value)  # which are right


def test_without_credentials_the_refusal_names_them(store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", store.url)  # of a machine without an identity
    store.fault = lambda request: "forbid" if "/latest/" in request.path else None
    with pytest.raises(InvalidInputError, match=r"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set .* --pass-env") as refusal:
        open_directory(checkpoints_in(store.options, tmp_path), ())
    assert "environment.secrets" in str(refusal.value)
    assert "environment.variables" not in str(refusal.value)  # which every viewer of the job can read


def test_a_rank_that_sees_another_store_is_told(store: FaultyStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="let the nodes use one store"):
        require_visible(checkpoints_in(store.options, tmp_path).storage, 3)


def saving_to(store: FaultyStore, world_size: int = 1) -> dict[str, Any]:
    return tiny_gpt(world_size) | {
        "checkpoint": {"every_steps": 4, "directory": f"s3://{BUCKET}/runs", "options": store.options},
        "environment": {"variables": CREDENTIALS},
    }


def test_ranks_save_to_a_store_and_go_on_elsewhere_to_the_last_bit(store: FaultyStore, make_job: MakeJob) -> None:
    place = f"s3://{BUCKET}/runs/job"
    straight = make_job(tiny_gpt(2) | {"checkpoint": {"every_steps": 4}}, "straight").run(2)[0]
    first = make_job(saving_to(store, 2), "here")
    end = first.run(2, checkpoint_directory=place)[0]
    committed = [event["directory"] for event in end.events_of("checkpoint_committed")]
    assert committed == [f"{place}/step-{step}.g1" for step in (4, 8, 12)]
    elsewhere = make_job(saving_to(store, 2), "elsewhere")
    elsewhere.generation = 1
    ends = elsewhere.run(2, checkpoint_directory=place, restore_from=(committed[1],), restore_required=True)
    assert ends[0].exit_code == 0, ends[0].output
    assert ends[0].events_of("checkpoint_restored") == [{"directory": committed[1], "step": 8}]
    expected = {step: loss for step, loss in straight.curve("loss").items() if step > 8}
    assert ends[0].curve("loss") == expected
    assert not [path for path in elsewhere.folder.rglob("staging/*/*") if path.is_file()]


def test_a_job_whose_bucket_cannot_be_written_ends_before_its_first_step(store: FaultyStore, make_job: MakeJob) -> None:
    spec = saving_to(store)
    (end,) = make_job(spec).run(checkpoint_directory="s3://nowhere/runs/job")
    assert end.exit_code == 1
    assert end.result is not None
    assert end.result.failure is not None
    assert (end.result.failure.kind, end.metrics) == ("invalid_input", [])
    assert "s3://nowhere/runs cannot be written from this node" in end.result.failure.message


def test_waiting_is_over_quickly_once_a_store_is_back(store: FaultyStore, tmp_path: Path) -> None:
    checkpoints, writer = opened(store, tmp_path), BackgroundWriter(1, print)
    store.fault = lambda request: "fail" if request.number <= 2 else None
    pending = PendingSave(checkpoints.group, snapshot_state(checkpoints, state_at(1), {}, writer.snapshot), writer)
    while (committed := pending.advance()) is None:
        pass
    assert restored(checkpoints, committed)[1] == digest(state_at(1))
    writer.close()
