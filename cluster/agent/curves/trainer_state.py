"""The history that transformers' Trainer keeps: `trainer_state.json`, written again into each checkpoint, whole.

It holds all entries since step 0, those of earlier generations as well: entries that lay on the disk before this generation began are not
new.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from paceline.monitoring.event_reader import Scalars
from paceline.monitoring.files import read_file
from paceline.monitoring.names import transformers_tag

FILE_NAME = "trainer_state.json"
MAX_BYTES = 16 << 20
#: Files from before this generation that are read for what they tell.
EARLIER_FILES = 32
_AT_THE_SIDE = frozenset({"step"})


class _State(msgspec.Struct):
    log_history: list[dict[str, Any]] = []


_decoder = msgspec.json.Decoder(_State)


class TrainerStates:
    """The trainer states of one output folder."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}  # path -> time of change, size
        self._entries: set[int] = set()  # hashes of those that are told, or not ours to tell
        self._earlier = 0

    def note_earlier(self, path: str) -> None:
        """Note the entries of a file from before this generation, so that they are not reported again."""
        if self._earlier < EARLIER_FILES:
            self._earlier += 1
            for _ in self._new_entries(Path(path)):
                pass

    def read(self, path: str) -> list[Scalars]:
        """The entries of `path` that no file had before. Raises OSError where the file is gone or too large, ValueError where it is not
        (yet) whole."""
        found = os.stat(path, follow_symlinks=False)
        if self._seen.get(path) == (found.st_mtime_ns, found.st_size):
            return []
        entries = list(self._new_entries(Path(path)))
        self._seen[path] = (found.st_mtime_ns, found.st_size)
        return [scalars for entry in entries if (scalars := _scalars(entry, found.st_mtime)) is not None]

    def _new_entries(self, path: Path) -> Iterator[Mapping[str, Any]]:
        for entry in _history(read_file(path, MAX_BYTES)):
            key = hash(json.dumps(entry, sort_keys=True))
            if key not in self._entries:
                self._entries.add(key)
                yield entry


def _history(content: bytes) -> list[dict[str, Any]]:
    """The log history of a trainer state. transformers writes NaN as it is, which is no JSON."""
    try:
        return _decoder.decode(content).log_history
    except msgspec.ValidationError:
        return []  # another program's file of the same name
    except msgspec.DecodeError:
        document = json.loads(content)
        history = document.get("log_history") if isinstance(document, dict) else None
        return [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []


def _scalars(entry: Mapping[str, Any], time: float) -> Scalars | None:
    step = entry.get("step")
    if not isinstance(step, int) or isinstance(step, bool):
        return None
    values = [
        (transformers_tag(name), float(value)) for name, value in entry.items() if name not in _AT_THE_SIDE and type(value) in (int, float)
    ]
    return Scalars(step, time, values) if values else None


def output_folder(path: str) -> Path:
    """The Trainer's `output_dir`: it writes into folders `checkpoint-N` in it, and at the end into the folder itself."""
    folder = Path(path).parent
    return folder.parent if folder.name.startswith("checkpoint-") else folder
