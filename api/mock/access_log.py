"""Keeps what simulated nodes say out of the log that `uvicorn api.main:app` writes: sixty lines a second would bury the developer's own requests."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

#: uvicorn's loggers of requests, and of WebSockets.
LOGGERS = ("uvicorn.access", "uvicorn.error")
OF_AGENTS = "/api/v1/agents/"
#: uvicorn says this of each WebSocket without naming it, beside a line that does.
UNNAMED = frozenset({"connection open", "connection closed"})


def _is_told(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's is about something other than a node's request or channel."""
    parts = record.args if isinstance(record.args, tuple) else ()
    return record.msg not in UNNAMED and not any(isinstance(part, str) and part.startswith(OF_AGENTS) for part in parts)


@contextlib.contextmanager
def without_nodes() -> Iterator[None]:
    """A context in which uvicorn logs no request and no channel of a node."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_told)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_told)
