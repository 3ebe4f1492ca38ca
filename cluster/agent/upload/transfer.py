"""One request of an agent that uploads files, and what its answer means."""

from __future__ import annotations

import logging
from typing import TypeVar

import httpx
import msgspec

REQUEST_TIMEOUT_SECONDS = 30.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class CoordinatorAwayError(Exception):
    """No answer, or one that does not concern this file: try again later."""


async def send(
    http: httpx.AsyncClient, method: str, path: str, content: bytes, kind: type[T], timeout: float = REQUEST_TIMEOUT_SECONDS
) -> T | None:
    """Send one request. Returns None where the coordinator refuses it for good. Raises CoordinatorAwayError."""
    try:
        response = await http.request(method, path, content=content, timeout=timeout)
    except httpx.HTTPError as error:
        raise CoordinatorAwayError(str(error) or type(error).__name__) from error
    if response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.UNPROCESSABLE_ENTITY):
        log.warning("%s %s answered %d: %s; dropped", method, path, response.status_code, response.text[:500])
        return None
    if response.status_code != httpx.codes.OK:
        raise CoordinatorAwayError(f"{method} {path} answered {response.status_code}: {response.text[:500]}")
    return msgspec.json.decode(response.content, type=kind)
