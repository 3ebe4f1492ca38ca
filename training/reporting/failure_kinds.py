"""What kind of failure an exception is, told by its class and its words, where the exception itself is gone. Pure."""

from __future__ import annotations

import re
from typing import Literal

#: gloo and NCCL raise plain RuntimeErrors, and so does torch for what a future of DDP's failed with; their words for a peer that is gone.
PEER_LOST = re.compile(
    r"gloo/|PeerLostError|Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe|Socket closed"
    r"|Connection was likely closed|Timed out waiting|NCCL (remote|communicator)|Read error|Application timeout caused pair closure",
    re.IGNORECASE,
)
#: gloo's words for a call that was wrong from the start.
_MISUSE = re.compile(r"enforce fail", re.IGNORECASE)
OUT_OF_MEMORY = re.compile(r"can't allocate memory|out of memory|Cannot allocate memory", re.IGNORECASE)

_OF_MEMORY = frozenset({"MemoryError", "OutOfMemoryError"})
_OF_CONNECTIONS = frozenset(
    {"RuntimeError", "ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError"}
    | {"DistError", "DistBackendError", "DistNetworkError", "DistStoreError"}
)

#: How torch words an exception that another process or thread has raised (`torch._utils.ExceptionWrapper.reraise`).
_CARRIED = re.compile(
    r"Caught (?P<exception>\w+) (?P<where>in .+)\.\nOriginal Traceback \(most recent call last\):\n(?P<rest>.*)", re.DOTALL
)
_FRAME = re.compile(r'^  File ".*", line \d+', re.MULTILINE)

Kind = Literal["exception", "out_of_memory", "peer_lost"]

MAX_MESSAGE_CHARACTERS = 4_000
MAX_TRACEBACK_CHARACTERS = 16_000


def kind_of_words(exception: str, message: str) -> Kind:
    """`exception`: the name of its class, with or without its module."""
    name = exception.rpartition(".")[2]
    if name in _OF_MEMORY or (name == "RuntimeError" and OUT_OF_MEMORY.search(message)):
        return "out_of_memory"
    if name in _OF_CONNECTIONS and PEER_LOST.search(message) and not _MISUSE.search(message):
        return "peer_lost"
    return "exception"


def in_words(kind: str, message: str) -> str:
    """The message of a failure of this kind."""
    first = first_line(message)
    if kind == "peer_lost":
        return f"lost the connection to another rank: {first}"
    if kind == "out_of_memory":
        return f"out of memory: {first}; use a smaller micro-batch or model"
    return message


def original(exception: str, message: str) -> str:
    """The message of what a DataLoader's worker has raised, and where, instead of the traceback that torch puts into the message of the `exception`
    that it raises for it; any other message as it is."""
    carried = _CARRIED.fullmatch(message)
    if carried is None:
        return message
    name = carried["exception"]
    frames = list(_FRAME.finditer(carried["rest"]))
    line = re.compile(rf"^(?:[\w.<>]+\.)?{re.escape(name)}(?:: (?P<said>.*))?$", re.MULTILINE)
    found = line.search(carried["rest"], frames[-1].end() if frames else 0)
    if found is None:
        return message
    said = carried["rest"][found.start("said") :].strip() if found["said"] else ""
    first, *more = (said or name).splitlines()
    named = first if name == exception.rpartition(".")[2] or not said else f"{name}: {first}"
    return "\n".join([f"{named} ({carried['where']})", *more])


def first_line(text: str) -> str:
    """The first line of a text, and … where there are more, for places that hold one line."""
    first, *more = text.strip().splitlines() or [""]
    return f"{first} …" if more else first


def shortened(message: str) -> str:
    """Cut a message to its first MAX_MESSAGE_CHARACTERS."""
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else f"{message[:MAX_MESSAGE_CHARACTERS]} …"


def encodable(text: str) -> str:
    """An exception may quote bytes that are no text (lone surrogates), and nothing can carry those further."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\ufffd")


def without_middle(text: str, limit: int) -> str:
    """Shorten `text` to about `limit` characters: head and tail, with a line about what is missing between them."""
    missing = len(text) - limit
    if missing <= 0:
        return text
    head, tail = text[: limit // 2], text[-(limit - limit // 2) :]
    return f"{head}\n… ({missing} characters left out) …\n{tail}"
