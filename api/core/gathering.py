"""Questions that wait at the same moment, answered together: one transaction for many instead of one for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from paceline.api.core.background import in_background
from paceline.db.errors import DatabaseBusyError

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class WaitingQuestion(Generic[Question, Answer]):
    key: str
    question: Question
    answer: asyncio.Future[Answer]

    def resolve(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass
class Gathering(Generic[Question, Answer]):
    """Questions, gathered into groups. `answer_all` gets at most `most` questions, each key once, and gives one answer for each, in the
    same order."""

    name: str
    answer_all: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]]
    most: int
    _queue: deque[WaitingQuestion[Question, Answer]] = field(default_factory=deque)
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _group: Sequence[WaitingQuestion[Question, Answer]] = ()  # that is being answered
    _has_ended: bool = False

    async def ask(self, key: str, question: Question) -> Answer:
        """The answer of `answer_all` to a question; an exception of the question is raised here, alone. Cancelled where no task answers
        any more."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._has_ended:
            answer.cancel()
        self._queue.append(WaitingQuestion(key, question, answer))
        self._work.set()
        return await answer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with in_background(self.name, self._run):
                yield
        finally:
            self._has_ended = True
            for waiting in (*self._group, *self._queue):
                waiting.answer.cancel()

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            if group := self._next_group():
                self._group = group
                await self._answer(group)
            else:
                self._work.clear()

    def _next_group(self) -> list[WaitingQuestion[Question, Answer]]:
        """The first questions in the queue, each key once: the second question of a key may depend on the answer to its first."""
        group: dict[str, WaitingQuestion[Question, Answer]] = {}
        later: list[WaitingQuestion[Question, Answer]] = []
        while self._queue and len(group) < self.most:
            waiting = self._queue.popleft()
            if waiting.answer.done():
                continue  # no task waits for it any more
            if waiting.key in group:
                later.append(waiting)
            else:
                group[waiting.key] = waiting
        self._queue.extendleft(reversed(later))
        return list(group.values())

    async def _answer(self, group: Sequence[WaitingQuestion[Question, Answer]]) -> None:
        try:
            answers = await self.answer_all([waiting.question for waiting in group])
        except Exception as error:  # noqa: BLE001 - handed on to whoever asked, who raises it
            await self._after(error, group)
            return
        for waiting, answer in zip(group, answers, strict=True):
            waiting.resolve(answer)

    async def _after(self, error: Exception, group: Sequence[WaitingQuestion[Question, Answer]]) -> None:
        """Handle a failed group: one question at fault must not cost the others their answers; where the database is at fault, all of
        them would only wait again."""
        if len(group) == 1 or isinstance(error, DatabaseBusyError):
            for waiting in group:
                waiting.fail(error)
            return
        for waiting in group:
            await self._answer([waiting])
