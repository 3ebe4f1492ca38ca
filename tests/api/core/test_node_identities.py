"""What is remembered of nodes while they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.core.node_identities import NodeIdentities
from paceline.cluster.protocol import RankKey
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import rank_marks
from tests import factories

Topic = Callable[[NodeRow], str]


@pytest.mark.parametrize(
    ("topic", "is_asked_again"),
    [
        (lambda node: bus.node(node.id), True),
        (lambda node: bus.EVERYTHING, True),
        (lambda node: bus.node("another"), False),
        (lambda node: bus.metrics("a job"), False),
    ],
    ids=["this node", "everything", "another node", "something else"],
)
async def test_what_was_read_of_a_node_while_it_changed_is_not_kept(
    services: Services, monkeypatch: pytest.MonkeyPatch, topic: Topic, is_asked_again: bool
) -> None:
    """Nor is anything forgotten of the others: a thousand agents that start together change one after the other."""
    identities, questions = NodeIdentities(services.control), 0
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    ask = rank_marks.living_ranks_of

    async def ask_while_it_changes(*arguments: Any) -> Any:
        nonlocal questions
        questions += 1
        identities.forget([topic(node)])
        return await ask(*arguments)

    monkeypatch.setattr(rank_marks, "living_ranks_of", ask_while_it_changes)
    for _ in range(2):
        found = await identities.find(credential)
        assert found is not None
        assert found.id == node.id
        assert await identities.held(node, {RankKey(job.id, 1, 0)}) == {RankKey(job.id, 1, 0)}
    assert (questions > 1) == is_asked_again


async def test_ranks_of_many_nodes_that_have_just_changed_are_asked_for_together(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes change as a coordinator starts, when all agents come: one by one, the last of a thousand waited for over ten seconds."""
    identities, nodes, places = NodeIdentities(services.control), [], []
    async with services.write() as session:
        for number in range(20):
            node, credential = await factories.create_node(session, name=f"node-{number}")
            job = await factories.create_running_job(session, node)
            places.append({RankKey(job.id, 1, 0)})
            nodes.append(credential)
    found = await asyncio.gather(*map(identities.find, nodes))
    identities.forget([bus.EVERYTHING])

    async def alone(*_: Any) -> NoReturn:
        raise AssertionError("a node's ranks were asked for alone")

    monkeypatch.setattr(rank_marks, "ranks_of", alone)
    held = await asyncio.gather(*(identities.held(node, mine) for node, mine in zip(found, places, strict=True) if node is not None))
    assert held == places
