"""Failed sign-ins in the history: who was tried, from where and how, never with what. A flood is counted, not listed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.schemas.common import RequestActor
from paceline.api.services.lifecycle import events
from paceline.credentials import KEY_PREFIX, hash_secret
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import identity as repository

FAILED = "auth.sign_in_failed"
UNKNOWN = "unknown"
#: Events of one hour, of as many addresses and users; what comes after them is counted in one more.
MOST_EVENTS = 100


@dataclass(frozen=True)
class TriedUser:
    """The user whom a credential would have signed in. `user_id` empty: it belongs to nobody."""

    user_id: str
    name: str
    how: str  # such as "API key pk_abc... (ci)"


@dataclass(frozen=True)
class FailedAttempt:
    tried: TriedUser
    address: str
    device: str | None
    why: str

    @property
    def place(self) -> tuple[str, str, str]:
        """Failures of one place are counted together."""
        return self.address, self.tried.how, self.tried.user_id


@dataclass
class _Counted:
    seq: int
    first: datetime
    count: int = 1


@dataclass
class FailedSignIns:
    """The events of this hour that this process has written: the next failure of the same kind is counted in its own."""

    services: Services
    _hour: datetime | None = None
    _events: dict[tuple[str, str, str], _Counted] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def note(self, attempt: FailedAttempt, now: datetime) -> None:
        """Record a failure, or count it in the event of those before it."""
        async with self._turn:
            self._begin_hour(now)
            known = self._events.get(attempt.place)
            if known is None and len(self._events) >= MOST_EVENTS:
                attempt = FailedAttempt(
                    TriedUser("", UNKNOWN, "several ways"), "", None, "more addresses and users than are listed one by one"
                )
                known = self._events.get(attempt.place)
            if known is None:
                async with self.services.write() as session:
                    seq = await _record(session, attempt, now)
                self._events[attempt.place] = _Counted(seq, now)  # not before it is written: else another event may get this number
                return
            async with self.services.write() as session:
                known.count += 1
                data = {"id": attempt.tried.user_id, "count": known.count, "last": now.isoformat()}
                await event_rows.recount(session, known.seq, _message(attempt, known.count, known.first), data)

    def _begin_hour(self, now: datetime) -> None:
        hour = now.replace(minute=0, second=0, microsecond=0)
        if hour != self._hour:
            self._hour = hour
            self._events.clear()


async def _record(session: AsyncSession, attempt: FailedAttempt, now: datetime) -> int:
    tried = attempt.tried
    actor = RequestActor(kind="user", id=tried.user_id, name=tried.name, address=attempt.address, via=attempt.device)
    data = {"id": tried.user_id, "count": 1}
    row = await events.record(session, type=FAILED, actor=actor, cause="request", message=_message(attempt, 1, now), data=data, time=now)
    await session.flush()
    return row.seq


def _message(attempt: FailedAttempt, count: int, first: datetime) -> str:
    times = "" if count == 1 else f", {count} times since {first:%H:%M} UTC"
    return f"a sign-in as {attempt.tried.name} by {attempt.tried.how} failed{times}: {attempt.why}"


async def tried_with(session: AsyncSession, token: str) -> TriedUser:
    """Return the user of a login link's token, or of an API key, whether or not it still works."""
    digest = hash_secret(token.strip())
    if token.startswith(KEY_PREFIX):
        found = await repository.key_with_user(session, digest)
        if found is None:
            return TriedUser("", UNKNOWN, "API key")
        key, user = found
        return TriedUser(user.id, user.name, f"API key {key.prefix}... ({key.name})")
    owner = await repository.user_of_link(session, hash_secret(token))
    return TriedUser("", UNKNOWN, "login link") if owner is None else TriedUser(owner.id, owner.name, "login link")
