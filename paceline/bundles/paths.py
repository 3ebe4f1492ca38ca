"""Which paths every node can hold: a job's code lies below the job's own folder there."""

from __future__ import annotations

import os

#: Of one file or folder, on every file system of Linux.
MOST_NAME_BYTES = 255
#: Of a path in a bundle. Linux takes 4,095 in all; the rest is for the job's folder in front, and for what Python caches beside a module.
MOST_PATH_BYTES = 3072
#: Of the target of a link.
MOST_TARGET_BYTES = 4095
_SHOWN = 60


def what_is_too_long(path: str, target: str | None = None) -> str | None:
    """Say what no node can hold of a path in a bundle, which is a link where it has a `target`, with the limit and the way out; None: it can hold all."""
    for name in path.split("/"):
        if (size := _size(name)) > MOST_NAME_BYTES:
            return f"{_shown(path)} has a name of {size:,} bytes, {_shown(name)}; a node holds {MOST_NAME_BYTES}: shorten it"
    if (size := _size(path)) > MOST_PATH_BYTES:
        return f"{_shown(path)} has {size:,} bytes; a path in a bundle may have {MOST_PATH_BYTES:,}: shorten the names of its folders, or nest fewer"
    if target is not None and (size := _size(target)) > MOST_TARGET_BYTES:
        return f"{_shown(path)} is a link to a path of {size:,} bytes; a node holds {MOST_TARGET_BYTES:,}: put a copy in its place"
    return None


def _size(text: str) -> int:
    return len(os.fsencode(text))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}…{text[-_SHOWN:]}")
