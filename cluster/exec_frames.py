"""The frames of an exec session: a command that runs beside a rank, between the client that started it and the keeper on the rank's node.

Both ends hold one WebSocket to the coordinator, which passes frames on in order. A text frame is one of the messages below as JSON. A binary frame
is output or input: from the keeper its first byte names the stream (`STDOUT` or `STDERR`), from the client all of it is standard input.

    client -> coordinator:  StartCommand, once
    client -> keeper:       binary, EndOfInput, TerminalSize, SendSignal, Taken
    keeper -> client:       Started, binary, Taken, then Exited or SessionEnded

Flow control is that of SSH's channels (RFC 4254, section 5.2): a side sends no more than `WINDOW_BYTES` that the other has not acknowledged with `Taken`.
So nothing between the two holds more than a window, a reader that stops stops the command and no pings, and signals are never behind input.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

WINDOW_BYTES = 512 << 10
#: The most of one binary frame, its first byte aside.
MOST_FRAME_BYTES = 32 << 10
#: The most of one text frame.
MOST_TEXT_BYTES = 64 << 10
MOST_WORDS, MOST_COMMAND_BYTES = 256, 32 << 10
MOST_ROWS = MOST_COLUMNS = 1000
DEFAULT_ROWS, DEFAULT_COLUMNS = 24, 80
STDOUT, STDERR = 1, 2
CANNOT_EXECUTE, NO_SUCH_PROGRAM = 126, 127  # as shells have it
#: Where a keeper presents itself, before the session's id.
KEEPER_PATH = "/api/v1/agents/exec/"
#: Close codes. ELSEWHERE: another replica of the coordinator has this session.
SESSION_OVER, REFUSED, ELSEWHERE, NO_IDENTITY = 1000, 4403, 4421, 4401

SignalName = Literal["INT", "QUIT", "TERM", "HUP", "USR1", "USR2", "WINCH"]


class StartCommand(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """The command that a client wants to run; an empty one is a shell."""

    rank: int = 0
    command: tuple[str, ...] = ()
    tty: bool = False
    rows: int = DEFAULT_ROWS
    columns: int = DEFAULT_COLUMNS
    term: str = ""


class TerminalSize(msgspec.Struct, frozen=True, kw_only=True, tag="size"):
    rows: int
    columns: int


class SendSignal(msgspec.Struct, frozen=True, kw_only=True, tag="signal"):
    """A signal for the process group of the command."""

    name: SignalName


class EndOfInput(msgspec.Struct, frozen=True, kw_only=True, tag="end_of_input"):
    """The client's standard input has ended."""


class Taken(msgspec.Struct, frozen=True, kw_only=True, tag="taken"):
    """So many more bytes have left the receiver, and may be followed by as many."""

    bytes: int


class Started(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """The command runs from now on."""

    node: str
    rank: int
    generation: int
    command: tuple[str, ...]


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag="exited"):
    """The command has ended. `exit_code` is 128 + N for one that signal N ended. `message`: why it could not be started."""

    exit_code: int
    message: str = ""


class SessionEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """The session was refused, or has ended before its command."""

    code: str
    message: str


FromClient = EndOfInput | TerminalSize | SendSignal | Taken
FromKeeper = Started | Taken | Exited | SessionEnded

Message = TypeVar("Message")

_start = msgspec.json.Decoder(StartCommand)
_from_client: msgspec.json.Decoder[FromClient] = msgspec.json.Decoder(FromClient)
_from_keeper: msgspec.json.Decoder[FromKeeper] = msgspec.json.Decoder(FromKeeper)


class UnfitFrameError(Exception):
    """A frame that the protocol does not have."""


def encode(message: StartCommand | FromClient | FromKeeper) -> str:
    return msgspec.json.encode(message).decode()


def decode_start(text: str | bytes) -> StartCommand:
    """The client's first frame. Raises UnfitFrameError, with what is wrong of it."""
    start = _decoded(_start, text)
    size = sum(len(word.encode("utf-8", "replace")) for word in start.command)
    if len(start.command) > MOST_WORDS or size > MOST_COMMAND_BYTES:
        raise UnfitFrameError(
            f"the command has {len(start.command)} words and {size} bytes; at most {MOST_WORDS} words and {MOST_COMMAND_BYTES} bytes "
            "are taken: put it into a file, or send it as input to a shell"
        )
    if any("\0" in word for word in start.command) or not _is_size(start.rows, start.columns) or len(start.term) > 64:
        raise UnfitFrameError("a word of the command holds a NUL, or the terminal's size or name is out of range")
    return start


def decode_from_client(text: str | bytes) -> FromClient:
    """A later frame of the client. Raises UnfitFrameError."""
    message = _decoded(_from_client, text)
    if isinstance(message, TerminalSize) and not _is_size(message.rows, message.columns):
        raise UnfitFrameError(f"a terminal of {message.rows} rows and {message.columns} columns: at most {MOST_ROWS} of each")
    return message


def decode_from_keeper(text: str | bytes) -> FromKeeper:
    """A frame of the keeper. Raises UnfitFrameError."""
    return _decoded(_from_keeper, text)


def _decoded(decoder: msgspec.json.Decoder[Message], text: str | bytes) -> Message:
    if len(text) > MOST_TEXT_BYTES:
        raise UnfitFrameError(f"a text frame of {len(text)} bytes; at most {MOST_TEXT_BYTES} are taken")
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UnfitFrameError(f"a frame that cannot be read: {error}") from error


def _is_size(rows: int, columns: int) -> bool:
    return 0 < rows <= MOST_ROWS and 0 < columns <= MOST_COLUMNS
