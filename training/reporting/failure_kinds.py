"""What kind of failure an exception is, told by its class, its words and where it was raised, where the exception itself is gone. Pure."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import Literal

from paceline.training.reporting.lost_peers import is_lost_peer
from paceline.training.reporting.users_code import raised_in

#: gloo's words for a call that was wrong from the start.
_MISUSE = re.compile(r"enforce fail", re.IGNORECASE)
_KILLED_WORKER = "is killed by signal: Killed"
#: /dev/shm is full, through which processes of one machine share tensors.
_OUT_OF_SHARED = r"unable to (?:allocate shared memory\(shm\)|write to file </torch_)|out of shared memory"
_OUT_OF_SHARED_MEMORY = re.compile(_OUT_OF_SHARED, re.IGNORECASE)
#: The last but one: of cuBLAS, cuDNN and their like.
OUT_OF_MEMORY = re.compile(
    rf"can't allocate memory|out of memory|Cannot allocate memory|DataLoader worker.* {_KILLED_WORKER}|_STATUS_ALLOC_FAILED|{_OUT_OF_SHARED}",
    re.IGNORECASE,
)
#: The classes by which torch says so; NCCL's on a full card is a DistBackendError.
_OF_TORCH = re.compile(r"RuntimeError|AcceleratorError|Dist(Backend|Network|Store)?Error")
#: What torch raises after that, which no longer says how the worker ended.
_LOST_WORKER = re.compile(r"DataLoader worker .* exited unexpectedly")

#: How torch words an exception that another process or thread has raised (`torch._utils.ExceptionWrapper.reraise`).
_CARRIED = re.compile(
    r"Caught (?P<exception>\w+) (?P<where>in .+)\.\nOriginal Traceback \(most recent call last\):\n(?P<rest>.*)", re.DOTALL
)
_FRAME = re.compile(r'^  File ".*", line \d+', re.MULTILINE)

RaisedFailureKind = Literal["exception", "out_of_memory", "peer_lost", "loss_not_finite", "loss_spike"]
#: What `paceline.Trainer` raises in a script where a bad loss is to stop the job.
_OF_A_LOSS: Mapping[str, RaisedFailureKind] = {
    "paceline.training.optim.bad_loss.LossNotFiniteError": "loss_not_finite",
    "paceline.training.optim.bad_loss.LossSpikeError": "loss_spike",
}

MAX_MESSAGE_CHARACTERS = 4_000
MAX_TRACEBACK_CHARACTERS = 16_000


def kind_of_words(exception: str, message: str, traceback: str, world_size: int) -> RaisedFailureKind:
    """The kind of a script's exception: see `lost_peers.is_lost_peer`. The module of its class may be unknown."""
    if exception in _OF_A_LOSS:
        return _OF_A_LOSS[exception]
    if _is_of_memory(exception.rpartition(".")[2], message, traceback):
        return "out_of_memory"
    if is_lost_peer(exception, message, raised_in(traceback), world_size) and not _MISUSE.search(message):
        return "peer_lost"
    return "exception"


def _is_of_memory(name: str, message: str, traceback: str) -> bool:
    if name.endswith("MemoryError"):  # numpy has one of its own
        return True
    if name == "OSError":
        return f"[Errno {errno.ENOMEM}]" in message
    if not _OF_TORCH.fullmatch(name):
        return False
    if _LOST_WORKER.search(message):
        return _KILLED_WORKER in traceback or _OUT_OF_SHARED_MEMORY.search(traceback) is not None
    return OUT_OF_MEMORY.search(message) is not None


def in_words(kind: str, message: str) -> str:
    """The message of a failure of this kind."""
    first = first_line(message)
    if kind == "peer_lost":
        return f"lost the connection to another rank: {first}"
    if kind == "out_of_memory":
        way_out = "use a smaller micro-batch or model"
        if _OUT_OF_SHARED_MEMORY.search(message):
            way_out = "make /dev/shm larger (docker run --shm-size), or use fewer DataLoader workers"
        return f"out of memory: {first}; {way_out}"
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
