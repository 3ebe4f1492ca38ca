"""Standard output that survives a full disk: what finds no room there is left out, counted, and told in a line of its own once there is room again."""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class LossyOutput(io.FileIO):
    """An open file whose writes never fail for want of room: bytes without room are lost, and the next line says how many they were.

    It reports what is lost as written, so that nothing above it keeps the bytes and tries them again. Other errors are raised."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._lost, self._why = 0, ""
        self._is_within_line = False

    def write(self, content: ReadableBuffer, /) -> int:
        """Write as much as there is room for; where there is none, lose all of it. Returns the bytes that are written or lost."""
        try:
            if self._lost:
                self._tell_loss()
            return self._append(content)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            count, self._why = memoryview(content).nbytes, error.strerror or "no room"
            self._lost += count
            return count

    def _tell_loss(self) -> None:
        begin = "\n" if self._is_within_line else ""
        note = f"{begin}WARNING {self._lost} bytes of output are lost here: {self._why}\n".encode()
        if self._append(note) < len(note):
            raise OSError(errno.ENOSPC, self._why)
        self._lost = 0

    def _append(self, content: ReadableBuffer) -> int:
        written = super().write(content)
        if written:
            self._is_within_line = memoryview(content).cast("B")[written - 1] != ord("\n")
        return written


def output_stream(descriptor: int) -> TextIO:
    """A line-buffered text stream of an open file, as `sys.stdout` is, which a full disk does not break."""
    stream = io.TextIOWrapper(io.BufferedWriter(LossyOutput(descriptor)), errors="backslashreplace", line_buffering=True)
    vars(stream)["mode"] = "w"  # as `open` does
    return stream
