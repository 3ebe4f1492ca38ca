"""The TCPStore of a script's ranks, which the node serves as torchrun's agent does; ranks reach it by MASTER_ADDR and MASTER_PORT."""

from __future__ import annotations

import socket

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # exported by its documentation, not by its types


def serve_store(host: str, listener: socket.socket) -> TCPStore:
    """Return a store that takes over the socket `listener` and serves it in a thread for as long as the store is referenced."""
    port = int(listener.getsockname()[1])
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
