"""A zip that is sent while it is written."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ZipStream:
    """A file for `zipfile` to write to: there is no file, and no more in memory than what was written since `take`."""

    _pieces: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Does nothing: zipfile calls it, and no data is held back."""

    def close(self) -> None:
        """Does nothing: there is no open file."""

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken
