from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from paceline.cluster.agent import checkpoints
from paceline.cluster.agent.checkpoints import MANIFEST, CheckpointDeletions, delete
from paceline.cluster.protocol import CheckpointToDelete
from tests.waiting import until

TIMEOUT_SECONDS = 10.0
EXIT_SECONDS = 60.0  # on a busy machine, imports included
#: An agent that ends while a file server hangs. It has three checkpoints to delete.
ENDS_EARLY = """
import asyncio, threading, types
from paceline.cluster.agent import checkpoints

begun = threading.Semaphore(0)

def delete(checkpoint, *_, **__):
    begun.release()
    threading.Event().wait()

async def agent():
    deletions = checkpoints.CheckpointDeletions(lambda: None)
    for name in "abc":
        deletions.start(types.SimpleNamespace(id=name))
    begun.acquire(timeout=10)

checkpoints.delete = delete
asyncio.run(agent())
"""


def make(path: Path, *, manifest: bool = True) -> Path:
    path.mkdir(parents=True)
    (path / "model.distcp").write_bytes(b"weights")
    if manifest:
        (path / MANIFEST).write_text("{}")
    return path


def order(path: Path) -> CheckpointToDelete:
    return CheckpointToDelete(id="c", directory=str(path))


def test_a_checkpoint_is_deleted_and_its_siblings_are_not(tmp_path: Path) -> None:
    doomed, sibling = make(tmp_path / "job" / "step-100.g1"), make(tmp_path / "job" / "step-200.g1")
    assert delete(order(doomed))
    assert not doomed.exists()
    assert sibling.exists()
    assert [path.name for path in (tmp_path / "job").iterdir()] == ["step-200.g1"]


def test_deleting_twice_is_harmless(tmp_path: Path) -> None:
    doomed = make(tmp_path / "step-100.g1")
    assert delete(order(doomed))
    assert delete(order(doomed))


def test_debris_needs_no_manifest(tmp_path: Path) -> None:
    assert delete(order(make(tmp_path / "step-100.g2.tmp", manifest=False)))


@pytest.mark.parametrize("name", ["step-100.g1", "home", "step-100", "step-x.g1"])
def test_anything_else_is_left_alone(tmp_path: Path, name: str) -> None:
    kept = make(tmp_path / name, manifest=name == "home")
    assert not delete(order(kept))
    assert (kept / "model.distcp").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target, link = make(tmp_path / "step-1.g1"), tmp_path / "step-2.g1"
    link.symlink_to(target)
    assert not delete(order(link))
    assert target.exists()


def test_a_folder_that_becomes_a_link_between_the_look_and_the_removal_has_nothing_elsewhere_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank may write where its checkpoints are, and the agent may be root."""
    job, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    doomed = make(job / "step-100.g1")
    kept = make(elsewhere / "step-100.g1")
    look = checkpoints._has_manifest

    def swap(folder: int) -> bool:
        job.rename(tmp_path / "moved")
        job.symlink_to(elsewhere)
        return look(folder)

    monkeypatch.setattr(checkpoints, "_has_manifest", swap)
    assert delete(order(doomed))
    assert (kept / "model.distcp").exists()
    assert list((tmp_path / "moved").iterdir()) == [], "the one that was looked at is gone"


def test_a_checkpoint_that_is_swapped_after_the_look_does_not_take_another_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doomed, other = make(tmp_path / "step-100.g1"), make(tmp_path / "other")
    look = checkpoints._has_manifest

    def swap(folder: int) -> bool:
        doomed.rename(tmp_path / "aside")
        other.rename(doomed)
        return look(folder)

    monkeypatch.setattr(checkpoints, "_has_manifest", swap)
    assert not delete(order(doomed)), "it is not empty"
    assert (tmp_path / "step-100.g1.tmp" / "model.distcp").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
@pytest.mark.parametrize("name", ["step-100.g1", "step-100.g1.tmp"])
def test_a_link_of_the_ranks_user_does_not_lead_an_agent_that_is_root_to_what_belongs_to_others(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`--run-as`: a job told of a checkpoint behind a link that it had made, and the agent deleted another user's, as root."""
    user = 65534
    folder = make(tmp_path / "others" / name)
    link = tmp_path / "job"
    link.symlink_to(folder.parent)
    os.lchown(link, user, user)
    for owner, is_gone in ((0, False), (user + 1, False), (user, True)):
        os.chown(folder, owner, owner)
        assert delete(order(link / name), distrusts_links=True) is is_gone
        assert folder.exists() is not is_gone
    assert "symbolic link of another user" in caplog.text


def test_without_another_user_for_ranks_any_link_in_the_path_is_followed(tmp_path: Path) -> None:
    folder, link = make(tmp_path / "disk" / "step-100.g1"), tmp_path / "job"
    link.symlink_to(folder.parent)
    assert delete(order(link / folder.name))
    assert not folder.exists()


@pytest.mark.parametrize("directory", ["checkpoints/step-1.g1", "/checkpoints/../step-1.g1"])
def test_a_path_must_say_what_it_means(directory: str) -> None:
    assert not delete(CheckpointToDelete(id="c", directory=directory))


def test_one_that_has_lost_its_manifest_can_still_be_deleted(tmp_path: Path) -> None:
    doomed = tmp_path / "step-100.g1"
    doomed.mkdir()
    for name in (".metadata", "__0_0.distcp", "__11_0.distcp", "__11_unsent.safetensors", "manifest.json.77.tmp"):
        (doomed / name).write_bytes(b"weights")
    assert delete(order(doomed))
    assert not doomed.exists()


@pytest.mark.parametrize("moved", [True, False])
def test_a_removal_that_was_interrupted_is_finished(tmp_path: Path, moved: bool) -> None:
    make(tmp_path / "step-100.g1.tmp", manifest=False)
    doomed = tmp_path / "step-100.g1"
    if not moved:
        make(doomed)
    assert delete(order(doomed))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_with_its_parents_is_gone(tmp_path: Path) -> None:
    assert delete(order(tmp_path / "job" / "step-100.g1"))


def test_an_agents_credentials_go_to_no_endpoint_that_only_a_job_names(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deleted: list[str] = []
    monkeypatch.setattr("paceline.training.saving.object_manifests.delete", lambda client, name: deleted.append(name))
    doomed = CheckpointToDelete(id="c", directory="s3://bucket/runs/step-1.g1", options={"endpoint": "https://minio.example"})
    assert (delete(doomed, {"https://another.example"}), deleted) == (False, [])
    assert "PACELINE_STORE_ENDPOINTS=https://minio.example" in caplog.text
    assert (delete(doomed, {"https://minio.example"}), deleted) == (True, ["step-1.g1"])


async def test_a_checkpoint_that_takes_long_to_delete_is_not_deleted_again_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """And once that has failed, it is tried again."""
    begun: list[str] = []
    succeeds = threading.Semaphore(0)

    def delete(checkpoint: CheckpointToDelete, store_endpoints: Collection[str], *, distrusts_links: bool) -> bool:
        begun.append(checkpoint.id)
        succeeds.acquire(timeout=TIMEOUT_SECONDS)
        return len(begun) > 1

    monkeypatch.setattr(checkpoints, "delete", delete)
    monkeypatch.setattr(checkpoints, "RETRY_SECONDS", 0.0)
    told: list[str] = []
    deletions, doomed = CheckpointDeletions(lambda: told.append("gone")), order(Path("/checkpoints/job/step-100.g1"))

    def asked_again() -> int:
        deletions.start(doomed)
        return len(begun)

    await until(lambda: asked_again() == 1, "the beginning of the deletion")
    for _ in range(3):
        assert asked_again() == 1
    succeeds.release()
    await until(lambda: asked_again() == 2, "another try")
    succeeds.release()
    await until(lambda: told, "the deletion")
    assert (asked_again(), deletions.done) == (2, {doomed.id})
    deletions.forget_all_but({doomed.id})
    assert deletions.done == {doomed.id}
    deletions.forget_all_but({"another"})  # the coordinator knows that it is gone
    assert deletions.done == set()


async def test_a_mount_that_answers_with_an_error_is_asked_again_after_a_while_and_not_at_every_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Path] = []

    def reach(path: Path, *, distrusts_links: bool) -> None:
        asked.append(path)
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(checkpoints, "reach", reach)
    deletions, doomed = CheckpointDeletions(lambda: None), order(tmp_path / "step-100.g1")
    deletions.start(doomed)
    await until(lambda: "Transport endpoint is not connected" in caplog.text, "the error")
    await until(lambda: doomed.id in deletions._again_at, "the next try")
    deletions.start(doomed)
    assert asked == [tmp_path]
    assert not any(record.exc_info for record in caplog.records)


def test_an_agent_that_ends_does_not_wait_for_checkpoints_that_take_long_to_delete() -> None:
    subprocess.run([sys.executable, "-c", ENDS_EARLY], check=True, timeout=EXIT_SECONDS)
