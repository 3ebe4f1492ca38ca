"""An app served by a real uvicorn in a thread of this process, so that its event loop can be watched."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from paceline.api.middleware.connections import GuardedProtocol
from tests.ports import HOST, free_port

START_SECONDS = 20


@dataclass(frozen=True)
class Served:
    port: int
    thread: int  # of its event loop

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


@contextmanager
def served(app: Any, *, http: type[GuardedProtocol] = GuardedProtocol, port: int | None = None, **options: Any) -> Iterator[Served]:
    port = port or free_port()
    config = uvicorn.Config(
        app, host=HOST, port=port, http=http, loop="asyncio", log_level="critical", timeout_graceful_shutdown=1, **options
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="served", daemon=True)
    thread.start()
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        assert thread.is_alive(), "the server has ended"
        assert time.monotonic() < deadline, f"the server has not started within {START_SECONDS} s"
        time.sleep(0.01)
    try:
        assert thread.ident is not None
        yield Served(port, thread.ident)
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
