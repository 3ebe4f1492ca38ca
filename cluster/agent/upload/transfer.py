"""Requests of an agent about files, and what their answers mean."""

from __future__ import annotations

import logging
from typing import TypeVar

import httpx
import msgspec

REQUEST_TIMEOUT_SECONDS = 30.0
#: The content type of every refusal of the coordinator's.
PROBLEM_TYPE = "application/problem+json"

log = logging.getLogger(__name__)
T = TypeVar("T")


class CoordinatorAwayError(Exception):
    """No answer, or one that does not concern this file: try again later."""


def refuses_for_good(response: httpx.Response) -> bool:
    """Whether the coordinator itself says that something is not there, or will never be taken. A proxy answers 404 in its own words while the coordinator
    behind it is away."""
    final = response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.UNPROCESSABLE_ENTITY)
    return final and response.headers.get("content-type", "").startswith(PROBLEM_TYPE)


async def send(
    http: httpx.AsyncClient, method: str, path: str, content: bytes, kind: type[T], timeout: float = REQUEST_TIMEOUT_SECONDS
) -> T | None:
    """Send one request. Returns None where the coordinator refuses it for good. Raises CoordinatorAwayError."""
    try:
        response = await http.request(method, path, content=content, timeout=timeout)
    except httpx.HTTPError as error:
        raise CoordinatorAwayError(str(error) or type(error).__name__) from error
    if refuses_for_good(response):
        log.warning("%s %s answered %d: %s; dropped", method, path, response.status_code, response.text[:500])
        return None
    if response.status_code != httpx.codes.OK:
        raise CoordinatorAwayError(f"{method} {path} answered {response.status_code}: {response.text[:500]}")
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise CoordinatorAwayError(f"the answer to {method} {path} cannot be read: {error}") from error
