"""Work beside the requests: it starts over when it breaks, and ends with its surroundings."""

from __future__ import annotations

import asyncio
import logging

import pytest

from paceline.api.core import background
from paceline.api.core.background import in_background


async def test_broken_work_starts_over_and_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(background, "RESTART_SECONDS", 0.0)
    starts = 0
    working = asyncio.Event()

    async def work() -> None:
        nonlocal starts
        starts += 1
        if starts < 3:
            raise RuntimeError("the disk said no")
        working.set()
        await asyncio.Event().wait()

    with caplog.at_level(logging.ERROR):
        async with in_background("the-work", work):
            await asyncio.wait_for(working.wait(), 5)
    assert starts == 3
    said = [record.message for record in caplog.records if record.name == background.__name__]  # not what other tests left behind
    assert [message.split(";")[0] for message in said] == ["the-work failed"] * 2
    assert "the disk said no" in caplog.text


async def test_it_is_cancelled_on_the_way_out() -> None:
    cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with in_background("the-work", work):
        await asyncio.wait_for(begun.wait(), 5)
    assert cancelled.is_set()
