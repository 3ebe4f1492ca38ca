"""Deleting checkpoints that the coordinator has given up, in folders and in object stores. Nothing but checkpoints is ever deleted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from paceline.cluster.agent.removal import remove_tree
from paceline.cluster.protocol import CheckpointToDelete
from paceline.monitoring.files import sync_folder
from paceline.objects.client import HASTY, ObjectClient
from paceline.objects.endpoints import require_listed
from paceline.objects.location import is_url, parse
from paceline.training.saving import object_manifests

#: How long a deletion that has failed is not tried again.
RETRY_SECONDS = 60.0
#: In threads of their own: a file server that hangs holds them up, and nothing else of the agent, not even its end.
AT_ONCE = 2
MANIFEST = "manifest.json"
SCRATCH = ".tmp"
_NAME = re.compile(r"step-\d+\.g\d+(\.tmp)?")
#: What a checkpoint is made of, for one that has lost its manifest.
_OURS = re.compile(r"\.metadata(\.tmp)?|__\d+_\d+\.distcp|__\d+_unsent\.safetensors|manifest\.json\..*")

log = logging.getLogger(__name__)


class CheckpointDeletions:
    """The deletions of this agent. `on_deleted` is called when a checkpoint is gone; its id is in `done` from then on. `store_endpoints`: those
    of jobs' stores that this agent's credentials may be sent to."""

    def __init__(self, on_deleted: Callable[[], None], store_endpoints: Collection[str] = ()) -> None:
        self._on_deleted, self._store_endpoints = on_deleted, store_endpoints
        self.done: set[str] = set()
        self._under_way: set[str] = set()
        self._again_at: dict[str, float] = {}  # monotonic

    def start(self, checkpoint: CheckpointToDelete) -> None:
        """Begin to delete a checkpoint, unless it is gone or just being deleted, it has failed lately, or enough others are being deleted."""
        if checkpoint.id in self.done or checkpoint.id in self._under_way or time.monotonic() < self._again_at.get(checkpoint.id, 0.0):
            return
        if len(self._under_way) == AT_ONCE:
            return
        self._under_way.add(checkpoint.id)
        work = (checkpoint, asyncio.get_running_loop())
        # A daemon: an agent that ends waits for no deletion. One that is interrupted leaves debris, which is deleted anew.
        threading.Thread(target=self._delete, args=work, name="deletes a checkpoint", daemon=True).start()

    def forget_all_but(self, doomed: Collection[str]) -> None:
        """Forget the checkpoints whose deletion the coordinator knows of, or no longer asks for: all but those that it still names."""
        self.done &= set(doomed)
        self._again_at = {checkpoint_id: at for checkpoint_id, at in self._again_at.items() if checkpoint_id in doomed}

    def _delete(self, checkpoint: CheckpointToDelete, loop: asyncio.AbstractEventLoop) -> None:
        succeeded = False
        try:
            succeeded = delete(checkpoint, self._store_endpoints)
        except Exception:
            log.exception("cannot delete checkpoint %s", checkpoint.directory)
        with contextlib.suppress(RuntimeError):  # the agent has ended
            loop.call_soon_threadsafe(self._on_end, checkpoint.id, succeeded)

    def _on_end(self, checkpoint_id: str, succeeded: bool) -> None:
        self._under_way.discard(checkpoint_id)
        if succeeded:
            self.done.add(checkpoint_id)
            self._on_deleted()
        else:
            self._again_at[checkpoint_id] = time.monotonic() + RETRY_SECONDS


def delete(checkpoint: CheckpointToDelete, store_endpoints: Collection[str] = ()) -> bool:
    """Delete a checkpoint. Returns whether it is gone from this node's disk, or from its store."""
    if is_url(checkpoint.directory):
        return _delete_from_store(checkpoint, store_endpoints)
    folder = Path(checkpoint.directory)
    try:
        reason = why_not(folder)
        if reason is not None:
            log.error("not deleting checkpoint %s: %s", checkpoint.id, reason)
            return False
        _remove(folder)
    except OSError as error:
        log.error("cannot delete checkpoint %s: %s", folder, error)
        return False
    return True


def _delete_from_store(checkpoint: CheckpointToDelete, store_endpoints: Collection[str]) -> bool:
    """Delete a checkpoint in an object store with this agent's credentials: its manifest first, so that half of one is debris."""
    try:
        place = parse(checkpoint.directory)
        if _NAME.fullmatch(place.name) is None:
            raise ValueError(f"{place} is not the name of a checkpoint (a place that ends in step-N.gG)")
        require_listed(checkpoint.options, store_endpoints)
        object_manifests.delete(ObjectClient(place.parent, checkpoint.options, HASTY), place.name)
    except (ValueError, OSError) as error:
        log.error("cannot delete checkpoint %s: %s", checkpoint.directory, error)
        return False
    return True


def why_not(folder: Path) -> str | None:
    """The reason why `folder` must not be deleted; None if it may be deleted, or is gone. Raises OSError where its file system does not answer."""
    name = _NAME.fullmatch(folder.name)
    if not folder.is_absolute() or ".." in folder.parts or name is None:
        return f"{folder} is not the name of a checkpoint (an absolute path that ends in step-N.gG)"
    if folder.is_symlink():
        return f"{folder} is a symbolic link"
    if folder.exists() and name.group(1) is None and not _is_ours(folder):
        return f"{folder} holds no {MANIFEST}, and files that no checkpoint has: it is not one of our checkpoints"
    return None


def _is_ours(folder: Path) -> bool:
    """Whether the folder is a checkpoint of this job, even one so damaged that its manifest is gone."""
    return folder.is_dir() and ((folder / MANIFEST).is_file() or all(_OURS.fullmatch(path.name) for path in folder.iterdir()))


def _remove(folder: Path) -> None:
    """Rename the folder to debris, then remove it, so that an interrupted removal never looks like a checkpoint. Debris of an earlier
    removal goes as well."""
    doomed = folder.with_name(folder.name.removesuffix(SCRATCH) + SCRATCH)
    _remove_if_there(doomed)
    if folder.exists():
        folder.rename(doomed)
        _remove_if_there(doomed)
    if folder.parent.exists():
        sync_folder(folder.parent)


def _remove_if_there(folder: Path) -> None:
    if folder.exists():
        remove_tree(folder)
