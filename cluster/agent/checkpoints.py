"""Deleting checkpoints that the coordinator has given up, in folders and in object stores. Nothing but checkpoints is ever deleted.

Job and rank have named the folder, and may change what its path leads to at any moment. So the path is walked once, everything else happens
in the folders that are open then, and where ranks have fewer rights than the agent (`--run-as`), a link leads only to what belongs to its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from paceline.cluster.agent.reached_folder import ReachedFolder, reach
from paceline.cluster.agent.removal import empty_folder, open_own
from paceline.cluster.protocol import CheckpointToDelete
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
    of jobs' stores that this agent's credentials may be sent to. `distrusts_links`: ranks are another user (`--run-as`)."""

    def __init__(self, on_deleted: Callable[[], None], store_endpoints: Collection[str] = (), *, distrusts_links: bool = False) -> None:
        self._on_deleted, self._store_endpoints, self._distrusts_links = on_deleted, store_endpoints, distrusts_links
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
            succeeded = delete(checkpoint, self._store_endpoints, distrusts_links=self._distrusts_links)
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


def delete(checkpoint: CheckpointToDelete, store_endpoints: Collection[str] = (), *, distrusts_links: bool = False) -> bool:
    """Delete a checkpoint. Returns whether it is gone from this node's disk, or from its store. `distrusts_links`: links that are not root's lead
    only to folders of their own owner."""
    if is_url(checkpoint.directory):
        return _delete_from_store(checkpoint, store_endpoints)
    folder = Path(checkpoint.directory)
    try:
        reason = _remove(folder, distrusts_links=distrusts_links)
        if reason is not None:
            log.error("not deleting checkpoint %s: %s", checkpoint.id, reason)
            return False
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


def _remove(folder: Path, *, distrusts_links: bool) -> str | None:
    """Remove a checkpoint, and before it the debris of an earlier removal. Returns the reason why it must not be removed; None: it is gone. Raises
    OSError where its file system does not answer."""
    if not folder.is_absolute() or ".." in folder.parts or _NAME.fullmatch(folder.name) is None:
        return f"{folder} is not the name of a checkpoint (an absolute path that ends in step-N.gG)"
    with contextlib.ExitStack() as stack:
        try:
            parent = stack.enter_context(reach(folder.parent, distrusts_links=distrusts_links))
        except (FileNotFoundError, NotADirectoryError):
            return None
        debris = folder.name.removesuffix(SCRATCH) + SCRATCH
        if folder.name != debris and _is_there(folder.name, parent):
            checkpoint = _open_checkpoint(folder, parent, stack)
            if isinstance(checkpoint, str):
                return checkpoint
            _remove_debris(debris, parent)
            os.rename(folder.name, debris, src_dir_fd=parent.descriptor, dst_dir_fd=parent.descriptor)
            empty_folder(checkpoint)  # the one that was looked at, whatever has got its name meanwhile
            os.rmdir(debris, dir_fd=parent.descriptor)
        else:
            _remove_debris(debris, parent)
        os.fsync(parent.descriptor)
    return None


def _is_there(name: str, parent: ReachedFolder) -> bool:
    try:
        os.lstat(name, dir_fd=parent.descriptor)
    except FileNotFoundError:
        return False
    return True


def _open_checkpoint(folder: Path, parent: ReachedFolder, stack: contextlib.ExitStack) -> int | str:
    """Open a checkpoint that is to go, even one so damaged that its manifest is gone. Returns the reason where it is none of ours."""
    if stat.S_ISLNK(os.lstat(folder.name, dir_fd=parent.descriptor).st_mode):
        return f"{folder} is a symbolic link"
    descriptor = os.open(folder.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent.descriptor)
    stack.callback(os.close, descriptor)
    parent.require_leads_to(descriptor)
    if not (_has_manifest(descriptor) or all(_OURS.fullmatch(name) for name in os.listdir(descriptor))):
        return f"{folder} holds no {MANIFEST}, and files that no checkpoint has: it is not one of our checkpoints"
    return descriptor


def _has_manifest(folder: int) -> bool:
    try:
        return stat.S_ISREG(os.lstat(MANIFEST, dir_fd=folder).st_mode)
    except FileNotFoundError:
        return False


def _remove_debris(name: str, parent: ReachedFolder) -> None:
    if _is_there(name, parent):
        with open_own(name, parent.descriptor) as left:
            parent.require_leads_to(left)
            empty_folder(left)
        os.rmdir(name, dir_fd=parent.descriptor)
