"""What kind of failure an exception is, told by its class and its words, where the exception itself is gone. Pure."""

from __future__ import annotations

import re
from typing import Literal

#: gloo and NCCL raise plain RuntimeErrors; their words for a peer that is gone.
PEER_LOST = re.compile(
    r"gloo/|Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe|Socket closed"
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
    first = next(iter(message.splitlines()), "")
    if kind == "peer_lost":
        return f"lost the connection to another rank: {first}"
    if kind == "out_of_memory":
        return f"out of memory: {first}; use a smaller micro-batch or model"
    return message


def shortened(message: str) -> str:
    """Its first MAX_MESSAGE_CHARACTERS."""
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else f"{message[:MAX_MESSAGE_CHARACTERS]} …"


def encodable(text: str) -> str:
    """An exception may quote bytes that are no text (lone surrogates), and nothing can carry those further."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\ufffd")


def without_middle(text: str, limit: int) -> str:
    """At most about `limit` characters: head and tail, with a line that says what is missing between them."""
    missing = len(text) - limit
    if missing <= 0:
        return text
    head, tail = text[: limit // 2], text[-(limit - limit // 2) :]
    return f"{head}\n… ({missing} characters left out) …\n{tail}"
