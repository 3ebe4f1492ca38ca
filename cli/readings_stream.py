"""Readings of nodes and cards as they come, from the coordinator's stream `cluster/stream`.

A lost connection is opened again behind the last frame that came, so that nothing is lost and nothing comes twice. A reader that is too far behind
misses what the coordinator no longer keeps for streams; `GET /cluster/nodes/ID/metrics` has that.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import connect

from paceline.cli.errors import CliError, UnreachableError
from paceline.cli.waiting import PATIENT_RETRIES, PATIENT_SECONDS

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

OPEN_TIMEOUT_S = 5.0
#: Without even a ping, which comes every 15 s.
SILENCE_S = 60.0
#: Codes with which the coordinator closes a stream that is not to be opened again.
REFUSALS = {4401: "the key is not valid, or no longer", 4404: "there is no such node"}


class NodeReading(NamedTuple):
    """One value that an agent has read. `subject`: host, gpu:0, net:eth0, as the coordinator names them."""

    node_id: str
    time: float  # seconds since the epoch
    subject: str
    metric: str
    value: float


def follow_readings(client: RestClient, node_id: str | None) -> Generator[NodeReading]:
    """Yield the readings of one node, or of all, that are stored from now on, until the caller stops.

    Raises UnreachableError after a minute without a stream, and CliError where the coordinator refuses it.
    """
    position, failures = None, 0
    while True:
        try:
            for frame in _frames(client, node_id, position):
                position, failures = frame["seq"], 0
                if frame["type"] == "record":
                    yield from _readings(frame["data"])
        except (WebSocketException, OSError) as error:
            problem = _refusal(error)
            if problem is not None:
                raise CliError(f"{client.settings.url} sends no readings: {problem}") from error
            failures += 1
            if failures > PATIENT_RETRIES:
                raise UnreachableError(
                    f"{client.settings.url} sends no readings: {error}", "is it up, and does its proxy pass WebSockets?"
                ) from error
        threading.Event().wait(PATIENT_SECONDS)


def _frames(client: RestClient, node_id: str | None, after: int | None) -> Iterator[dict[str, Any]]:
    """Yield the frames of one connection, until the coordinator ends it."""
    given = [f"{name}={value}" for name, value in (("node_id", node_id), ("after", after)) if value is not None]
    url = client.stream_url("/cluster/stream" + ("?" + "&".join(given) if given else ""))
    key = client.settings.key
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with connect(url, ssl=client.tls, additional_headers=headers, open_timeout=OPEN_TIMEOUT_S, close_timeout=1.0) as stream:
        while True:
            yield msgspec.json.decode(stream.recv(timeout=SILENCE_S))


def _readings(data: dict[str, Any]) -> Iterator[NodeReading]:
    for subject, metrics in data["columns"].items():
        for metric, values in metrics.items():
            for time, value in zip(data["times"], values, strict=True):
                if value is not None:
                    yield NodeReading(data["node_id"], time, subject, metric, float(value))


def _refusal(error: Exception) -> str | None:
    if isinstance(error, ConnectionClosed):
        return REFUSALS.get(error.rcvd.code) if error.rcvd else None
    if isinstance(error, InvalidStatus) and error.response.status_code < 500:
        return f"it answers {error.response.status_code}"
    return None
