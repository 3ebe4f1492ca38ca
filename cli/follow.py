"""Following a job's log: the REST cursor is the truth, the WebSocket only makes it look sooner.

A line is yielded once, in the order of its `seq`. The log has ended when the coordinator says that it is complete: the job is in a terminal
state and every line is stored. Without a stream (a proxy that does not pass WebSockets, an older coordinator) polling carries on.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from paceline.cli.answers import parsed
from paceline.cli.api_types import LogEntry, LogPage
from paceline.cli.client import RestClient
from paceline.cli.waiting import PATIENT_RETRIES, patient

#: Between two looks while nothing is announced, soon after what was last: the end of a job follows its last line, and no frame tells of it.
FIRST_POLL_S, POLL_S = 0.1, 1.0
OPEN_TIMEOUT_S = 5.0
PAGE = 2000


@dataclass(frozen=True)
class LogFilter:
    """The lines to read; None: no restriction. `regex`: `grep` is a regular expression. `context`: so many lines around each."""

    rank: str | None = None
    grep: str | None = None
    level: str | None = None
    regex: bool = False
    context: int = 0
    since: datetime | None = None
    until: datetime | None = None

    def parameters(self) -> dict[str, object]:
        return {
            "rank": self.rank,
            "q": self.grep,
            "level": self.level,
            "regex": self.regex or None,  # an older coordinator takes no parameter that it does not know
            "context": self.context or None,
            "since": self.since and self.since.isoformat(),
            "until": self.until and self.until.isoformat(),
        }


def read_page(client: RestClient, job_id: str, after: int, only: LogFilter, **options: object) -> LogPage:
    document = client.get(f"/training/jobs/{job_id}/logs", after=after, **only.parameters(), **options)
    return parsed(document, LogPage)


def follow_log(client: RestClient, job_id: str, after: int, only: LogFilter, retries: int = PATIENT_RETRIES) -> Iterator[LogEntry]:
    """Every matching line after the cursor, until the log is complete. A coordinator that is away is asked again `retries` times."""
    news = StreamNews(client, f"/training/jobs/{job_id}/logs/stream")
    with contextlib.closing(news):
        while True:
            ask = functools.partial(read_page, client, job_id, after, only, limit=PAGE)
            page = patient(ask, retries)
            yield from last_states(page.items)
            searched = page.next_after > after
            after = max(after, page.next_after)
            if page.complete and len(page.items) == 0:
                return
            if len(page.items) == 0 and (page.at_end or not searched):
                news.wait(after)


def stored_log(client: RestClient, job_id: str, after: int, only: LogFilter) -> Iterator[LogEntry]:
    """Every matching line after the cursor that is stored by now. A page may be empty: a long search takes several."""
    while True:
        page = read_page(client, job_id, after, only, limit=PAGE)
        yield from last_states(page.items)
        if page.at_end or page.next_after <= after:
            return
        after = page.next_after


def newest_log(client: RestClient, job_id: str, after: int, only: LogFilter, count: int, *, follow: bool) -> Iterator[LogEntry]:
    """The newest `count` matching lines; with `follow` those to come as well."""
    page = read_page(client, job_id, after, only, tail=True, limit=count)
    yield from last_states(page.items)
    if follow:
        yield from follow_log(client, job_id, page.next_after, only)


def is_arriving(client: RestClient, job_id: str) -> bool:
    """Whether the job has ended while lines of its log are still on their way to the coordinator."""
    return read_page(client, job_id, 0, LogFilter(), tail=True, limit=1).arriving


def last_states(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """Leave out lines that a later one of the same rank overwrites, as a progress bar does."""
    kept: dict[int, LogEntry] = {}
    newest: dict[tuple[int, int], int] = {}
    for entry in entries:
        place = (entry.generation, entry.rank)
        if entry.overwrites and place in newest:
            kept.pop(newest[place], None)
        newest[place] = entry.seq
        kept[entry.seq] = entry
    return list(kept.values())


class StreamNews:
    """A wait that ends early when a stream of the coordinator has a frame; at most POLL_S without one."""

    def __init__(self, client: RestClient, path: str) -> None:
        self._client = client
        self._path = path
        self._open_streams = contextlib.ExitStack()
        self._stream: ClientConnection | None = None
        self._refused = False
        self._seconds = FIRST_POLL_S

    def wait(self, after: int) -> None:
        stream, seconds = self._stream or self._open(after), self._seconds
        self._seconds = min(2 * seconds, POLL_S)
        if stream is None:
            threading.Event().wait(seconds)
            return
        try:
            while not _announces(stream.recv(timeout=seconds), after):
                pass
            self._seconds = FIRST_POLL_S
        except TimeoutError:
            return
        except (WebSocketException, OSError):
            self.close()

    def close(self) -> None:
        self._stream = None
        self._open_streams.close()

    def _open(self, after: int) -> ClientConnection | None:
        if self._refused:
            return None
        key = self._client.settings.key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = self._client.stream_url(f"{self._path}?after={after}")
        try:
            opening = connect(url, ssl=self._client.tls, additional_headers=headers, open_timeout=OPEN_TIMEOUT_S, close_timeout=1.0)
            self._stream = self._open_streams.enter_context(opening)
        except (WebSocketException, OSError):
            self._refused = True
        return self._stream


def _announces(frame: Any, after: int) -> bool:
    document = msgspec.json.decode(frame)
    return document.get("type") in ("line", "record", "gap", "reset") and document.get("seq", after + 1) > after
