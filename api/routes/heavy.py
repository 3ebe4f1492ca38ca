"""Reads of whole histories for routes: answers from `HeavyReads`, and downloads of which only a few go on at once.

HEAD computes nothing: a caller that may have the answer gets 200 without it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from paceline.api.core.admission import Admission
from paceline.api.deps import ServicesDep
from paceline.api.services.history.heavy_reads import HeavyReads
from paceline.api.services.history.history_process import HistoryQuestion

T = TypeVar("T")


class HistoryReads:
    """The heavy reads of one request."""

    def __init__(self, reads: HeavyReads, now: datetime, *, head: bool) -> None:
        self._reads = reads
        self._now = now
        self._head = head

    async def get(self, question: HistoryQuestion, _: type[T]) -> T:
        return cast("T", await self._reads.get(question, self._now, head=self._head))


async def history_reads(request: Request, services: ServicesDep) -> HistoryReads:
    return HistoryReads(request.app.state.heavy_reads, services.now(), head=getattr(request.state, "head", False))


Reads = Annotated[HistoryReads, Depends(history_reads)]


class DownloadResponse(StreamingResponse):
    """A download that reads a whole history while it is sent. It waits for its turn before its first byte. `scratch` is a temporary folder that it
    is sent from, which is removed at its end, also where no turn came or the client has gone."""

    def __init__(
        self, pieces: AsyncIterator[str | bytes], *, media_type: str, headers: Mapping[str, str], scratch: Path | None = None
    ) -> None:
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._scratch = scratch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._send(scope, receive, send)
        finally:
            if self._scratch is not None:
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True))

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("state", {}).get("head"):
            await Response(headers=dict(self.headers))(scope, receive, send)
            return
        turns: Admission = cast("Any", scope["app"]).state.downloads
        async with turns.turn():
            await super().__call__(scope, receive, send)
