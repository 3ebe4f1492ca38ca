"""Locks of cards between data folders, across the end of an agent, and what a spawner inherits."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.errors import CardTakenError
from paceline.monitoring.samples import Gpu
from tests.waiting import wait_until

TIMEOUT_SECONDS = 30
HOLDER = """
import sys, time
from paceline.cluster.agent.card_locks import inherit
held = inherit([int(sys.argv[1])])
print("holding", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cards() -> tuple[Gpu, ...]:
    return tuple(Gpu(index=index, uuid=f"GPU-{uuid.uuid4()}", name="NVIDIA Test", memory_bytes=1) for index in range(3))


@pytest.fixture
def first(tmp_path: Path) -> Iterator[CardLocks]:
    locks = CardLocks(tmp_path / "first")
    yield locks
    locks.close()


@pytest.fixture
def second(tmp_path: Path) -> Iterator[CardLocks]:
    locks = CardLocks(tmp_path / "second")
    yield locks
    locks.close()


def test_a_card_has_one_holder(first: CardLocks, second: CardLocks, cards: tuple[Gpu, ...]) -> None:
    assert first.hold(cards[:2], 2) == cards[:2]
    assert first.hold(cards[:2], 2) == cards[:2]  # the second time changes nothing
    with pytest.raises(CardTakenError) as refused:
        second.hold(cards, 3)
    assert f"GPU 0 and GPU 1 (NVIDIA Test) are offered by the agent (process {os.getpid()}) already" in str(refused.value)
    assert "offer the others with --gpus 2, or stop that agent" in str(refused.value)
    third = CardLocks(Path("/third"))
    assert third.hold(cards[2:], 1) == cards[2:]  # a refusal leaves nothing locked
    third.close()


def test_so_many_that_are_free(first: CardLocks, second: CardLocks, cards: tuple[Gpu, ...]) -> None:
    first.hold(cards[:1], 1)
    assert second.hold(cards, 1) == cards[1:2]
    third = CardLocks(Path("/third"))
    with pytest.raises(CardTakenError, match="of 3 cards 1 is free: say --slots 1"):
        third.hold(cards, 2)


def test_what_a_child_has_inherited_outlives_the_agent(first: CardLocks, second: CardLocks, cards: tuple[Gpu, ...]) -> None:
    first.hold(cards[:1], 1)
    descriptors = first.renew()
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(descriptors[0])],
        pass_fds=descriptors,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"holding\n"
    first.close()
    with pytest.raises(CardTakenError, match=rf"the agent \(process {child.pid}\)"):
        second.hold(cards[:1], 1)
    child.communicate(timeout=TIMEOUT_SECONDS)
    wait_until(lambda: _can_hold(second, cards[:1]), "the lock of an ended process", seconds=TIMEOUT_SECONDS)


def _can_hold(locks: CardLocks, cards: tuple[Gpu, ...]) -> bool:
    try:
        return locks.hold(cards, len(cards)) == cards
    except CardTakenError:
        return False
