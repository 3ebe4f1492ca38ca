"""Keeps a log file that a process was started with from growing for ever, while the process goes on writing to it.

The process that writes it opened it to append (O_APPEND), so after the file is cut the process writes on at its new end. What it writes between the
copy and the cut is lost: a few lines at worst, once in many megabytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

#: A file that is larger is cut; its end is kept beside it, as NAME.1, until the next cut.
MAX_BYTES = 16 << 20
KEPT_BYTES = 8 << 20
LOOK_EVERY_SECONDS = 60.0

logger = logging.getLogger(__name__)


def cut(path: Path, limit: int = MAX_BYTES, kept: int = KEPT_BYTES) -> bool:
    """Move the last `kept` bytes of a file of more than `limit` to NAME.1 and empty it. Whether it was too large."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size <= limit:
        return False
    beside = path.with_name(f"{path.name}.1")
    with open(path, "rb") as source, open(beside, "wb") as target:
        source.seek(max(0, size - kept))
        shutil.copyfileobj(source, target)
    os.truncate(path, 0)
    return True


async def cap_periodically(paths: Sequence[Path]) -> None:
    """Cap the size of these log files now and then once a minute, until cancelled. A file that cannot be cut is logged, and tried again."""
    while True:
        for path in paths:
            try:
                if await asyncio.to_thread(cut, path):
                    logger.info("%s had over %d bytes; its end is in %s.1", path, MAX_BYTES, path)
            except OSError as error:
                logger.warning("%s cannot be cut: %s", path, error)
        await asyncio.sleep(LOOK_EVERY_SECONDS)
