"""Whether an exception tells no more than that another rank is gone: by where it was raised, since a data server's words are the same. Pure."""

from __future__ import annotations

import re

#: The words of gloo, NCCL, torch's stores and the kernel for a peer that is gone.
_LOST = re.compile(
    r"Connection closed by (remote )?peer|Connection reset by peer|Connection refused|Broken pipe|Socket closed|Read error"
    r"|Connection was likely closed|Timed out waiting|waiting for clients|NCCL (remote|communicator)|ncclRemoteError|remote process exited"
    r"|Application timeout caused pair closure",
    re.IGNORECASE,
)
#: gloo, and torch's part that calls NCCL, begin their messages with the line of C++ that raised them. Everything that gloo throws is about peers.
_IN_GLOO = re.compile(r"\bgloo/[\w/]+\.(cc|h):\d+\]")
#: Of our own rings: torch hands on what a hook of DDP raises as a RuntimeError with the error's traceback in its message.
_IN_RING = re.compile(r"\bPeerLostError: ")
_IN_C10D = re.compile(r"/c10d/[\w/]+\.[ch]pp:\d+")
#: The classes that torch.distributed raises. torch's `record` writes them down without their module.
_OF_TORCH = re.compile(r"(torch\.distributed\.)?Dist(Backend|Network|Store)?Error")
#: Python code that talks to other ranks, and what lies below `torch/distributed` without doing so itself: files, and processes of one machine.
_TALKS = re.compile(r"/torch/distributed/(?!checkpoint/|elastic/|launcher/)|/torch/nn/parallel/distributed\.py$|/paceline/distributed/")


def is_lost_peer(exception: str, message: str, raised_in: str, world_size: int) -> bool:
    """Return whether a rank of a world of this size has only lost another one. `exception`: its class, with the module where it is known;
    `raised_in`: the file of the innermost frame outside the standard library, whose sockets serve everyone."""
    if world_size < 2:
        return False
    if _IN_GLOO.search(message) or _IN_RING.search(message):
        return True
    of_communication = _OF_TORCH.fullmatch(exception) or _IN_C10D.search(message) or _TALKS.search(raised_in)
    return of_communication is not None and _LOST.search(message) is not None
