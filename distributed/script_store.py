"""The store of a script's ranks, as torchrun's agent serves it: they reach it by MASTER_ADDR and MASTER_PORT."""

from __future__ import annotations

import socket

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported by its documentation, not by its types


def serve_store(host: str, listener: socket.socket) -> TCPStore:
    """A store at `listener`, which takes over that socket and serves it in a thread of its own for as long as it is kept."""
    port = int(listener.getsockname()[1])
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
