"""Files in the folders of a script that look like checkpoints: the one that was written last and still exists.

Paceline can neither verify nor load such a file, nor tell which program wrote it. It reports when the last one was written, and its step
where the name has it. `paceline.Trainer` reports its own checkpoints, wherever they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from paceline.training.saving.manifest import NAME

SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors")
#: Files that are a checkpoint's only where others lie beside them: a `.bin` elsewhere is more often data.
PART_SUFFIXES = (".bin", ".distcp")
#: torch.distributed.checkpoint writes it into a checkpoint's folder after the `.distcp` files.
INDEX = ".metadata"
#: A file that has not changed for so long is written to its end.
AT_REST_SECONDS = 5.0
LOOK_SECONDS = 5.0
#: Between two checkpoints that are told of.
REPORT_SECONDS = 60.0
#: Files that are known at once; each is looked at every LOOK_SECONDS.
MAX_FILES = 500
#: The names that frameworks give to one checkpoint's folder, as `checkpoint-40`, `step_40`, `epoch_3`, `global_step40`.
_CHECKPOINT_FOLDER = re.compile(r"(?:step|checkpoint|ckpt|iter(?:ation)?|epoch)[-_=.]?\d", re.IGNORECASE)
#: transformers counts steps in `checkpoint-40`; the number in Accelerate's `checkpoint_0` counts saves.
_STEP = re.compile(r"(?:step|iter(?:ation)?)[-_=.]?(\d{1,15})|checkpoint-(\d{1,15})", re.IGNORECASE)


@dataclass(frozen=True)
class ScriptCheckpoint:
    """A checkpoint that a script has written: one file, or a folder of them."""

    path: str
    bytes: int
    step: int | None  # None: its name has none
    time: float  # when it was last written to, in seconds since the epoch


@dataclass
class _Written:
    """The files of one checkpoint, as they were when last looked at: path -> (bytes, time)."""

    files: dict[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        names = [os.path.basename(path) for path in self.files]
        return INDEX in names or not any(name.endswith(".distcp") for name in names)

    @property
    def time(self) -> float:
        return max((time for _, time in self.files.values()), default=0.0)

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


class SavedFiles:
    """The checkpoints among the files that the search has found below `roots`; files from before `started` count once they are written
    again."""

    def __init__(self, roots: Collection[str], started: float) -> None:
        self._roots, self._started = frozenset(map(Path, roots)), started
        self._written: dict[Path, _Written] = {}
        self._reported: ScriptCheckpoint | None = None
        self._next_look = self._next_report = 0.0

    def note(self, path: str) -> None:
        """Note a file that was found. Beyond MAX_FILES the checkpoint that was written first is forgotten."""
        checkpoint, seen = self._checkpoint_of(Path(path)), size_and_time(path)
        if checkpoint is None or seen is None:
            return
        self._written.setdefault(checkpoint, _Written()).files[path] = seen
        if sum(len(each.files) for each in self._written.values()) > MAX_FILES:
            del self._written[min(self._written, key=lambda each: (self._written[each].time, each))]

    def news(self, now: float, *, ended: bool = False) -> ScriptCheckpoint | None:
        """The newest checkpoint, where it is another one than was reported last. `ended`: the ranks have ended, and write no more."""
        if now < self._next_look and not ended:
            return None
        self._next_look = now + LOOK_SECONDS
        self._look()
        newest = self._newest(now if not ended else now + AT_REST_SECONDS)
        if newest is None or newest == self._reported or (now < self._next_report and not ended):
            return None
        self._reported, self._next_report = newest, now + REPORT_SECONDS
        return newest

    def _checkpoint_of(self, file: Path) -> Path | None:
        """The checkpoint that a file belongs to: its folder, or the file itself; None where it is neither, or of `paceline.Trainer`."""
        folder = file.parent
        if NAME.fullmatch(folder.name):
            return None
        if folder not in self._roots and (file.name == INDEX or file.suffix == ".distcp" or _CHECKPOINT_FOLDER.search(folder.name)):
            return folder
        return file if file.name.endswith(SUFFIXES) else None

    def _look(self) -> None:
        for checkpoint, written in list(self._written.items()):
            seen = {path: size_and_time(path) for path in written.files}
            written.files = {path: found for path, found in seen.items() if found is not None}
            if not written.files:
                del self._written[checkpoint]

    def _newest(self, now: float) -> ScriptCheckpoint | None:
        at_rest = {path: each for path, each in self._written.items() if self._started <= each.time <= now - AT_REST_SECONDS}
        whole = {path: each for path, each in at_rest.items() if each.is_whole}
        if not whole:
            return None
        path, written = max(whole.items(), key=lambda each: (each[1].time, each[0]))
        return ScriptCheckpoint(str(path), written.bytes, step_in(path.name), written.time)


def is_saved_file(name: str) -> bool:
    """Whether a file of this name may be a checkpoint, or a part of one."""
    return name == INDEX or name.endswith(SUFFIXES + PART_SUFFIXES)


def size_and_time(path: str) -> tuple[int, float] | None:
    """The bytes of a file and when it was last written; None where the file is gone or out of reach."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime


def step_in(name: str) -> int | None:
    """The step in the name of a checkpoint: 40 of `checkpoint-40`, 10 of `epoch=0-step=10.ckpt`, none of `snapshot.pt`."""
    found = _STEP.search(name)
    return int(found[1] or found[2]) if found else None
