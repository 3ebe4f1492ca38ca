"""`Idempotency-Key` for every create: the key is claimed in the transaction that creates, so both happen or neither does.

    async def create_user(body: UserCreate, once: Once, session: WriteSession, ...) -> User:
        return await once.run(session, body, User, lambda: users.create(session, body))

The same key with the same body gets the same answer for a day; with another body 422; while the first is still running 409.
On SQLite, where writers queue, the second one simply waits for its turn and gets the answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Header, Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.deps import ServicesDep, Viewer
from paceline.api.errors import ProblemError
from paceline.db.models.identity import IdempotencyKeyRow
from paceline.db.repositories import idempotency as repository

T = TypeVar("T", bound=BaseModel)
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]


@dataclass(frozen=True)
class OnceOnly:
    """One request's claim on its key."""

    key: str | None
    user_id: str
    route: str
    services: ServicesDep

    async def run(
        self, session: AsyncSession, body: BaseModel, schema: type[T], create: Callable[[], Awaitable[T]], *, secret: bool = False
    ) -> T:
        """The answer of `create`, or of the request that used this key before. `secret`: the answer itself is not kept."""
        if self.key is None:
            return await create()
        digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
        earlier = await self._claim(session, digest)
        if earlier is not None:
            return self._replay(earlier, digest, schema)
        answer = await create()
        kept = None if secret else answer.model_dump(mode="json")
        await repository.complete(session, self.user_id, self.key, kept)
        return answer

    async def _claim(self, session: AsyncSession, digest: str) -> IdempotencyKeyRow | None:
        assert self.key is not None
        if not await repository.lock(session, self.user_id, self.key):
            raise ProblemError(
                "idempotency_conflict", f"a request with Idempotency-Key {self.key!r} is still running", headers={"Retry-After": "1"}
            )
        row = IdempotencyKeyRow(user_id=self.user_id, key=self.key, route=self.route, body_hash=digest, created_at=self.services.now())
        return await repository.claim(session, row)

    def _replay(self, earlier: IdempotencyKeyRow, digest: str, schema: type[T]) -> T:
        if (earlier.route, earlier.body_hash) != (self.route, digest):
            raise ProblemError(
                "idempotency_key_reused", f"Idempotency-Key {self.key!r} was used for another request; use a new key for a new request"
            )
        if earlier.response is None:
            raise ProblemError(
                "already_created", "it was created when this key was first used; its secret is shown only once: create another"
            )
        return schema.model_validate(earlier.response)


async def once_only(request: Request, caller: Viewer, services: ServicesDep, key: IdempotencyKey = None) -> OnceOnly:
    route = f"{request.method} {request.url.path}?{request.url.query}".rstrip("?")
    return OnceOnly(key=key, user_id=caller.user_id, route=route, services=services)


Once = Annotated[OnceOnly, Depends(once_only)]
