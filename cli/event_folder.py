"""A folder of TensorBoard event files that grow while their job trains.

Each download has the records of some steps on; a file takes those behind its own last step, at its end, so that a TensorBoard that reads it goes
on reading. A job that has gone back to an older step makes its files anew.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paceline.monitoring import tensorboard


@dataclass
class EventFolder:
    folder: Path
    #: The last step in each file of this job.
    last_steps: dict[Path, int] = field(default_factory=dict)

    @property
    def next_step(self) -> int:
        """The first step that some file lacks; ranks report at different times."""
        return min(self.last_steps.values(), default=-1) + 1

    def write(self, archive: Path) -> None:
        """Make every file anew. A reader sees the old file or the new one."""
        self.last_steps = {}
        for name, data in _contents(archive):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_suffix(".part")
            scratch.write_bytes(data)
            os.replace(scratch, path)
            self.last_steps[path] = max((step for step, _ in tensorboard.records_of_steps(data)), default=-1)

    def append(self, archive: Path) -> int:
        """Append what is new. Returns the number of new records."""
        return sum(self._append(self.folder / name, data) for name, data in _contents(archive))

    def _append(self, path: Path, data: bytes) -> int:
        last = self.last_steps.get(path, -1)
        new = [(step, record) for step, record in tensorboard.records_of_steps(data) if step > last]
        if path not in self.last_steps:  # a rank that has joined
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tensorboard.header_in(data))
        with path.open("ab") as file:
            file.write(b"".join(record for _, record in new))
        self.last_steps[path] = max([last, *(step for step, _ in new)])
        return len(new)


def _contents(archive: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as files:
        for name in files.namelist():
            yield name, files.read(name)
