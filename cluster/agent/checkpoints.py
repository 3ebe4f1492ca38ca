"""Deleting checkpoint folders that the coordinator has given up. Nothing but checkpoints is ever deleted."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

from cluster.protocol import CheckpointToDelete
from monitoring.files import sync_folder

MANIFEST = "manifest.json"
_NAME = re.compile(r"step-\d+\.g\d+(\.tmp)?")

log = logging.getLogger(__name__)


def delete(checkpoint: CheckpointToDelete) -> bool:
    """Whether it is gone from this node's disk."""
    folder = Path(checkpoint.directory)
    reason = why_not(folder)
    if reason is not None:
        log.error("not deleting checkpoint %s: %s", checkpoint.id, reason)
        return False
    if folder.exists():
        try:
            _remove(folder)
        except OSError as error:
            log.error("cannot delete checkpoint %s: %s", folder, error)
            return False
    return True


def why_not(folder: Path) -> str | None:
    """Why `folder` must not be deleted; None if it may be, or is gone."""
    name = _NAME.fullmatch(folder.name)
    if not folder.is_absolute() or ".." in folder.parts or name is None:
        return f"{folder} is not the name of a checkpoint (an absolute path that ends in step-N.gG)"
    if folder.is_symlink():
        return f"{folder} is a symbolic link"
    if folder.exists() and name.group(1) is None and not (folder / MANIFEST).is_file():
        return f"{folder} holds no {MANIFEST}: it is not one of our checkpoints"
    return None


def _remove(folder: Path) -> None:
    """As debris first, so that an interrupted removal never looks like a checkpoint."""
    doomed = folder
    if not folder.name.endswith(".tmp"):
        doomed = folder.with_name(f"{folder.name}.tmp")
        folder.rename(doomed)
    shutil.rmtree(doomed)
    sync_folder(folder.parent)
