"""Messages on a stream of bytes, one JSON object a line: so agents speak to their spawners, their ranks and the readers of curves."""

from __future__ import annotations

import msgspec

_encoder = msgspec.json.Encoder()


def encode_line(message: msgspec.Struct) -> bytes:
    """The message as a line, its end included. JSON has no line's end within."""
    return _encoder.encode(message) + b"\n"


class LineBuffer:
    """Whole lines out of the pieces in which a stream arrives; the beginning of one that is not whole yet is kept."""

    def __init__(self) -> None:
        self._begun = b""

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` has completed, without their ends."""
        *lines, self._begun = (self._begun + piece).split(b"\n")
        return lines
