"""Checkpoints are whole or not there, and what is damaged is never loaded."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from traceback import StackSummary
from typing import Any

import msgspec
import pytest
from torch.distributed.checkpoint.api import CheckpointException

from paceline.monitoring.file_hashes import File
from paceline.training.errors import CheckpointCorruptError
from paceline.training.saving import manifest as manifests
from paceline.training.saving import shards
from paceline.training.saving.manifest import Manifest
from paceline.training.saving.storage import SIGN
from scripts.torture.damage import Spoiler
from tests.gangs import Job, RankEnd
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt


def saving(every: int = 4, **changes: object) -> dict[str, object]:
    return tiny_gpt(**changes) | {"checkpoint": {"every_steps": every}}  # type: ignore[arg-type]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def failure_of(end: RankEnd) -> str:
    assert end.result is not None
    assert end.result.failure is not None
    return f"{end.result.failure.kind}: {end.result.failure.message}"


def test_commits_are_announced_with_the_hash_of_their_manifest(make_job: MakeJob) -> None:
    job = make_job(saving())
    (end,) = job.run()
    committed = end.events_of("checkpoint_committed")
    assert [event["step"] for event in committed] == [4, 8, 12]
    assert [event["directory"] for event in committed] == list(reversed(job.newest_first()))
    folder = Path(committed[-1]["directory"])
    assert hashlib.sha256((folder / manifests.MANIFEST).read_bytes()).hexdigest() == committed[-1]["manifest_sha256"]
    manifest = manifests.read(folder)
    assert (manifest.step, manifest.generation, manifest.world_size) == (12, 1, 1)
    assert committed[-1]["bytes"] == manifest.bytes == sum((folder / name).stat().st_size for name in manifest.files)
    assert set(committed[-1]["metrics"]) == {"loss", "eval_loss"}
    assert set(committed[0]["metrics"]) == {"loss"}  # not evaluated at step 4: nothing stale is claimed


def test_every_file_is_in_the_manifest(make_job: MakeJob) -> None:
    job = make_job(saving(nodes=2))
    job.run(2)
    for folder in map(Path, job.newest_first()):
        assert {path.name for path in folder.iterdir()} == {manifests.MANIFEST, *manifests.read(folder).files}


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_flipped_bit_is_found_and_the_next_older_one_restored(make_job: MakeJob, world_size: int) -> None:
    job = make_job(saving(nodes=world_size))
    job.run(world_size)
    newest, older, _ = map(Path, job.newest_first())
    flip_a_bit(next(newest.glob("*.distcp")))
    end = job.resume(world_size)[0]
    assert [event["directory"] for event in end.events_of("checkpoint_damaged")] == [str(newest)]
    assert "SHA-256" in end.events_of("checkpoint_damaged")[0]["reason"]
    assert end.events_of("checkpoint_restored") == [{"directory": str(older), "step": 8}]
    assert min(end.curve("loss")) == 9


def test_a_job_whose_checkpoints_were_deleted_says_so(make_job: MakeJob) -> None:
    (end,) = make_job(saving()).run(restore_required=True)
    assert failure_of(end).startswith(
        "checkpoint_failed: no usable checkpoint: those that this job could start from were deleted or are damaged"
    )
    assert not end.metrics


@pytest.mark.parametrize("damage", ["manifest gone", "manifest torn", "shard gone", "shard short"])
def test_whatever_is_incomplete_is_not_loaded(make_job: MakeJob, damage: str) -> None:
    job = make_job(saving(every=12))
    job.run()
    (newest,) = map(Path, job.newest_first())
    shard, manifest = next(newest.glob("*.distcp")), newest / manifests.MANIFEST
    match damage:
        case "manifest gone":
            manifest.unlink()
        case "manifest torn":
            os.truncate(manifest, 40)
        case "shard gone":
            shard.unlink()
        case "shard short":
            os.truncate(shard, 100)
    (end,) = job.run(restore_from=(str(newest),), restore_required=True)
    assert end.exit_code == 1
    assert failure_of(end).startswith("checkpoint_failed: no usable checkpoint: tried")
    assert len(end.events_of("checkpoint_damaged")) == 1
    assert not end.metrics


def test_restoring_that_is_not_required_starts_over(make_job: MakeJob) -> None:
    (end,) = make_job(saving()).run(restore_from=("/nonexistent",))
    assert end.exit_code == 0
    assert min(end.curve("loss")) == 1


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 4)])
def test_any_world_loads_any_checkpoint(make_job: MakeJob, before: int, after: int) -> None:
    straight = make_job(saving(every=6), "straight").run()[0]
    job = make_job(saving(every=6, nodes=before))
    job.run(before)
    _, half = job.newest_first()
    job.spec = saving(every=6, nodes=after)
    end = job.run(after, restore_from=(half,), restore_required=True)[0]
    expected = {step: loss for step, loss in straight.curve("loss").items() if step > 6}
    assert end.curve("loss") == pytest.approx(expected, abs=1e-6)


def test_a_save_that_fails_is_reported_and_training_goes_on(make_job: MakeJob) -> None:
    job = make_job(saving())
    job.checkpoints.mkdir(parents=True)
    (job.checkpoints / "step-4.g1.tmp").write_text("in the way")
    (end,) = job.run()
    assert end.exit_code == 0
    assert [event["step"] for event in end.events_of("checkpoint_failed")] == [4]
    assert "File exists" in end.events_of("checkpoint_failed")[0]["reason"]
    assert [event["step"] for event in end.events_of("checkpoint_committed")] == [8, 12]


LIMITED = """
import os
import resource
import torch
from paceline.training.task import Task

class Numbers:
    def __len__(self):
        return 64

    def batch(self, indices, generator):
        return (torch.ones(len(indices), 200),)

def task(spec):
    if os.environ["RANK"] == "1":
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))  # room for metrics, not for half a model
    return Task(torch.nn.Linear(200, 200), Numbers(), lambda model, batch: (model(batch[0]).square().mean(), {}))
"""


def test_checkpoints_out_of_reach_are_not_called_damaged_and_do_once_they_are_back(make_job: MakeJob) -> None:
    """A file system that is not mounted, or a node that has none of them: the job had lost all of its checkpoints for good."""
    job = make_job(saving())
    job.run()
    candidates, away = job.newest_first(), job.checkpoints.with_name("away")
    job.checkpoints.rename(away)
    (end,) = job.run(restore_from=tuple(candidates), restore_required=True)
    assert end.exit_code == 1
    assert "no checkpoint can be read here: tried" in failure_of(end)
    assert failure_of(end).startswith("exception")  # which a restart may be good for
    assert end.events_of("checkpoint_damaged") == []
    shutil.rmtree(job.checkpoints, ignore_errors=True)
    away.rename(job.checkpoints)
    (end,) = job.run(restore_from=tuple(candidates), restore_required=True)
    assert (end.exit_code, end.events_of("checkpoint_restored")) == (0, [{"directory": candidates[0], "step": 12}])


def test_one_out_of_reach_is_given_up_where_the_run_goes_on_from_an_older_one(make_job: MakeJob) -> None:
    job = make_job(saving())
    job.run()
    newest, older, _ = map(Path, job.newest_first())
    newest.rename(newest.with_name("elsewhere"))
    (end,) = job.run(restore_from=(str(newest), str(older)), restore_required=True)
    assert [event["directory"] for event in end.events_of("checkpoint_damaged")] == [str(newest)]
    assert end.events_of("checkpoint_restored") == [{"directory": str(older), "step": 8}]


#: Rank 1 has less than the limit to write of model and optimizer, and more of what its gradients have left out.
COMPRESSED = {"optimizer": {"kind": "sgd", "lr": 0.01, "momentum": 0.0}, "communication": {"compression": "top_k", "dense_steps": 2}}


@pytest.mark.parametrize("changes", [{}, COMPRESSED], ids=["plain", "compressed gradients"])
def test_a_disk_full_on_one_rank_fails_the_save_on_all_and_training_goes_on(
    make_job: MakeJob, tmp_path: Path, changes: dict[str, object]
) -> None:
    (tmp_path / "limited.py").write_text(LIMITED)
    spec = saving(nodes=2, steps=5) | {"entrypoint": "limited:task", "environment": {"working_directory": str(tmp_path)}} | changes
    job = make_job({name: value for name, value in spec.items() if name not in ("model", "data")})
    first, second = job.run(2)
    (failed, _) = first.events_of("checkpoint_failed")
    assert failed["step"] == 4
    assert "rank 1" in failed["reason"]
    assert re.search(r"[\d,]+ MB are free there", failed["reason"])
    assert max(first.curve("loss")) == max(second.curve("step_seconds")) == 5
    assert failure_of(second).startswith("checkpoint_failed")  # the last step's save may not be lost
    assert [path.name for path in job.checkpoints.iterdir()] == [SIGN]


def test_a_checkpoint_of_a_run_that_diverged_is_no_damaged_one(make_job: MakeJob) -> None:
    job = make_job(saving(gradient_clip_norm=None) | {"optimizer": {"kind": "sgd", "lr": 1e30, "momentum": 0.0}})
    job.run()
    (end,) = job.resume()
    assert (end.exit_code, end.events_of("checkpoint_damaged")) == (0, [])
    assert manifests.read(Path(job.newest_first()[0])).metrics["loss"] == "NaN"


def test_debris_of_older_generations_is_removed_and_nothing_else(make_job: MakeJob) -> None:
    job = make_job(saving(), "debris")
    job.run()
    debris, stranger, newer = (job.checkpoints / name for name in ("step-9.g1.tmp", "notes.tmp", "step-9.g7.tmp"))
    for folder in (debris, stranger, newer):
        folder.mkdir()
    kept = job.newest_first()
    job.resume()
    assert [folder.exists() for folder in (debris, stranger, newer)] == [False, True, True]
    assert set(kept) <= set(job.newest_first())


def test_a_disk_that_fails_while_a_verified_checkpoint_is_read_costs_that_one_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, read_tensors = Spoiler(tmp_path, seed=0), shards.load_tensors  # type: ignore[attr-defined]

    def fail_for_the_newest(tensors: Any, *, storage_reader: Any, planner: Any, no_dist: bool) -> None:
        read_tensors(tensors, storage_reader=storage_reader, planner=planner, no_dist=no_dist)
        if Path(storage_reader.path) == pair.newest:
            raise CheckpointException("read", {0: (OSError(5, "Input/output error"), StackSummary())})

    monkeypatch.setattr(shards, "load_tensors", fail_for_the_newest)
    said, state = pair.restore(pair.newest, pair.older)
    assert said.events == [("checkpoint_damaged", pair.newest.name), ("checkpoint_restored", pair.older.name)]
    assert "Input/output error" in said.lines[0]
    assert state == pair.expected


def test_a_checkpoint_that_nobody_was_told_of_is_told_by_the_next_generation(make_job: MakeJob) -> None:
    job = make_job(saving(), "untold")
    job.run()
    newest, older, oldest = job.newest_first()
    flip_a_bit(Path(older) / manifests.MANIFEST)
    (end,) = job.run(restore_from=(oldest,), restore_required=True)
    first, *others = end.events_of("checkpoint_committed")
    assert (first["directory"], first["generation"], first["step"]) == (newest, 1, 12)
    assert [event["generation"] for event in others] == [2, 2]


def test_a_directory_that_is_not_shared_is_refused(make_job: MakeJob, tmp_path: Path) -> None:
    job = make_job(tiny_gpt(2))
    gang = job.start(2, by_rank={1: {"checkpoint_directory": str(tmp_path / "elsewhere")}})
    ends = gang.wait()
    for end in ends:
        assert failure_of(end).startswith("invalid_input: checkpoint directory")
        assert "shared file system" in failure_of(end)


def test_a_directory_that_cannot_be_made_is_said_at_once(make_job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (end,) = make_job(tiny_gpt()).run(checkpoint_directory=str(tmp_path / "file" / "checkpoints"))
    assert "Not a directory" in failure_of(end)


def test_another_model_does_not_fit(make_job: MakeJob) -> None:
    job: Job = make_job(saving())
    job.run()
    job.spec = job.spec | {"model": {"kind": "gpt", "layers": 1, "heads": 2, "dim": 32, "context": 16}}
    (end,) = job.resume()
    assert failure_of(end).startswith("invalid_input:")
    assert "does not fit this job's model" in failure_of(end)


def test_a_manifest_of_a_later_format_is_not_guessed_at(tmp_path: Path) -> None:
    fields = {"format": 3, "job_id": "", "step": 1, "generation": 1, "world_size": 1, "seed": 0, "spec_sha256": "", "created": 0.0}
    (tmp_path / manifests.MANIFEST).write_bytes(msgspec.json.encode(fields | {"best": None, "metrics": {}, "files": {}}))
    with pytest.raises(CheckpointCorruptError, match="format 3; this version reads 2"):
        manifests.read(tmp_path)


def test_a_checkpoint_of_pipes_and_devices_is_damaged_and_never_waited_for(tmp_path: Path) -> None:
    """A rank of another job may have left them: they would hang a restore, or fill the memory."""
    folder = tmp_path / "step-1.g1"
    folder.mkdir()
    os.mkfifo(folder / "data")
    fields: dict[str, Any] = {"step": 1, "generation": 1, "world_size": 1, "seed": 0, "spec_sha256": "", "created": 0.0}
    described = File(bytes=0, sha256=hashlib.sha256().hexdigest())
    manifests.write(folder, Manifest(**fields, job_id="", best=None, metrics={}, files={"data": described}))
    with pytest.raises(CheckpointCorruptError, match="data: "):
        manifests.verify(folder, manifests.read(folder), ["data"])
    manifest = folder / manifests.MANIFEST
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        manifest.unlink()
        make(manifest)
        with pytest.raises(CheckpointCorruptError, match="no readable manifest"):
            manifests.read(folder)
