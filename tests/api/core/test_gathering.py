"""Questions that wait together are answered together; one at fault fails alone, and each key's questions keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from paceline.api.core.gathering import Gathering
from paceline.db.errors import DatabaseBusyError

MOST = 4


class Answers:
    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.busy = False

    async def of(self, questions: Sequence[int]) -> list[int]:
        self.groups.append(list(questions))
        await asyncio.sleep(0)
        if self.busy:
            raise DatabaseBusyError("busy")
        if 13 in questions:
            raise ValueError("13")
        return [2 * question for question in questions]


async def ask_all(answers: Answers, questions: Sequence[tuple[str, int]]) -> list[int | BaseException]:
    gathering = Gathering("test", answers.of, MOST)
    async with gathering.running():
        return await asyncio.gather(*(gathering.ask(key, question) for key, question in questions), return_exceptions=True)


async def test_what_waits_together_is_answered_in_groups_of_a_limited_size() -> None:
    answers = Answers()
    assert await ask_all(answers, [(str(n), n) for n in range(10)]) == [2 * n for n in range(10)]
    assert [len(group) for group in answers.groups] == [4, 4, 2]


async def test_a_key_is_in_a_group_once_and_its_questions_stay_in_order() -> None:
    answers = Answers()
    assert await ask_all(answers, [("a", 1), ("a", 2), ("b", 3), ("a", 4)]) == [2, 4, 6, 8]
    assert answers.groups == [[1, 3], [2], [4]]


async def test_one_question_at_fault_costs_the_others_nothing() -> None:
    answers = Answers()
    found = await ask_all(answers, [(str(n), n) for n in (12, 13, 14)])
    assert (found[0], found[2]) == (24, 28)
    assert isinstance(found[1], ValueError)


async def test_a_busy_database_is_not_asked_again_for_each_question() -> None:
    answers = Answers()
    answers.busy = True
    found = await ask_all(answers, [(str(n), n) for n in range(3)])
    assert all(isinstance(each, DatabaseBusyError) for each in found)
    assert len(answers.groups) == 1


async def test_no_task_waits_for_ever_once_it_has_stopped() -> None:
    started, gathering = asyncio.Event(), Gathering[int, int]("test", lambda _: _never(started), MOST)
    async with gathering.running():
        asked = [asyncio.create_task(gathering.ask(str(n), n)) for n in range(2 * MOST)]
        await started.wait()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asked[-1], 5.0)
    assert (await asyncio.wait(asked, timeout=5.0))[1] == set()


async def test_who_asks_after_its_end_is_cancelled() -> None:
    """A node's channel says farewell while the coordinator ends: it waited for ever, and with it the whole shutdown."""
    gathering = Gathering[int, int]("test", _thirteen_fails, MOST)
    async with gathering.running():
        pass
    late = asyncio.create_task(gathering.ask("late", 1))
    assert (await asyncio.wait([late], timeout=5.0))[1] == set()
    assert late.cancelled()


async def test_questions_behind_one_at_fault_are_cancelled_with_it() -> None:
    gathering = Gathering[int, int]("test", _thirteen_fails, MOST)
    async with gathering.running():
        asked = [asyncio.create_task(gathering.ask(str(n), n)) for n in (13, 1, 2)]
        with pytest.raises(ValueError, match="13"):
            await asked[0]
    assert (await asyncio.wait(asked, timeout=5.0))[1] == set()


async def _thirteen_fails(questions: Sequence[int]) -> list[int]:
    if 13 in questions:
        raise ValueError("13")
    await asyncio.Event().wait()
    return []


async def _never(started: asyncio.Event) -> list[int]:
    started.set()
    await asyncio.Event().wait()
    return []
