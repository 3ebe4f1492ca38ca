"""Questions that wait at the same moment, answered together: one transaction for many instead of one for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from api.services.background import in_background
from db.errors import DatabaseBusyError

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Waiting(Generic[Question, Answer]):
    key: str
    question: Question
    answer: asyncio.Future[Answer]

    def settle(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass
class Gathering(Generic[Question, Answer]):
    """`answer_all` gets at most `most` questions, each key once, and gives one answer for each, in the same order."""

    name: str
    answer_all: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]]
    most: int
    _queue: deque[Waiting[Question, Answer]] = field(default_factory=deque)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, key: str, question: Question) -> Answer:
        """What `answer_all` says to it; what it raises is raised here, for the question at fault alone."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(key, question, answer))
        self._work.set()
        return await answer

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background(self.name, self._run)

    async def _run(self) -> None:
        try:
            while True:
                await self._work.wait()
                if group := self._next_group():
                    await self._answer(group)
                else:
                    self._work.clear()
        finally:
            for waiting in self._queue:
                waiting.answer.cancel()

    def _next_group(self) -> list[Waiting[Question, Answer]]:
        """The first in the queue, each key once: the second question of a key may depend on the answer to its first."""
        group: dict[str, Waiting[Question, Answer]] = {}
        later: list[Waiting[Question, Answer]] = []
        while self._queue and len(group) < self.most:
            waiting = self._queue.popleft()
            if waiting.answer.done():
                continue  # nobody waits for it any more
            if waiting.key in group:
                later.append(waiting)
            else:
                group[waiting.key] = waiting
        self._queue.extendleft(reversed(later))
        return list(group.values())

    async def _answer(self, group: Sequence[Waiting[Question, Answer]]) -> None:
        try:
            answers = await self.answer_all([waiting.question for waiting in group])
        except asyncio.CancelledError:  # we are stopped: nobody will answer these
            for waiting in group:
                waiting.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - handed on to whoever asked, who raises it
            await self._after(error, group)
            return
        for waiting, answer in zip(group, answers, strict=True):
            waiting.settle(answer)

    async def _after(self, error: Exception, group: Sequence[Waiting[Question, Answer]]) -> None:
        """One at fault must not cost the others their answers; where the database is at fault, all of them would only wait again."""
        if len(group) == 1 or isinstance(error, DatabaseBusyError):
            for waiting in group:
                waiting.fail(error)
            return
        for waiting in group:
            await self._answer([waiting])
