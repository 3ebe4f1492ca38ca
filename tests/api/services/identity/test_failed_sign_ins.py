"""Failed sign-ins are counted in events of their own and in no others."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.identity import failed_sign_ins
from paceline.api.services.identity.failed_sign_ins import FAILED, UNKNOWN, FailedAttempt, FailedSignIns, TriedUser
from paceline.api.services.lifecycle import events
from paceline.db.repositories import events as event_rows

ATTEMPT = FailedAttempt(TriedUser("", UNKNOWN, "login link"), "10.0.0.7", None, "it is unknown")


def refuse(_: object) -> None:
    raise OSError("the disk is full")


async def test_one_that_could_not_be_written_is_counted_in_no_event_of_another_kind(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one was written over whatever had got the number of the event that was not kept."""
    failed, now, record = FailedSignIns(services), services.now(), failed_sign_ins._record

    async def record_in_vain(session: AsyncSession, *rest: Any) -> int:
        event.listen(session.sync_session, "before_commit", refuse)
        return await record(session, *rest)

    with monkeypatch.context() as full:
        full.setattr(failed_sign_ins, "_record", record_in_vain)
        with pytest.raises(OSError, match="the disk is full"):
            await failed.note(ATTEMPT, now)
    async with services.write() as session:
        await events.record(session, type="test", actor=SYSTEM, cause="test", message="another")
    await failed.note(ATTEMPT, now)
    async with services.control.read() as session:
        found = await event_rows.after(session, 0, limit=10)
    assert [(row.type, row.message) for row in found] == [
        ("test", "another"),
        (FAILED, "a sign-in as unknown by login link failed: it is unknown"),
    ]
