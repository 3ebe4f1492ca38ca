"""Messages on a stream of bytes, one JSON object a line: so agents speak to their spawners, their ranks and the readers of curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


def encode_line(message: msgspec.Struct, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """The message as a line, its end included. JSON has no line's end within. `enc_hook`: as msgspec has it."""
    return msgspec.json.encode(message, enc_hook=enc_hook) + b"\n"


class LineBuffer:
    """Whole lines out of the pieces in which a stream arrives; the beginning of one that is not whole yet is kept."""

    def __init__(self) -> None:
        self._begun = b""

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` has completed, without their ends."""
        *lines, self._begun = (self._begun + piece).split(b"\n")
        return lines
