"""Flow control: a sender waits once its window is used up, and goes on with what was taken."""

from __future__ import annotations

import asyncio

from paceline.monitoring.send_window import SendWindow


async def test_a_sender_has_the_room_that_is_left_and_waits_without_any() -> None:
    window = SendWindow(10)
    assert await window.room(4) == 4
    window.spend(8)
    assert await window.room(4) == 2
    window.spend(2)
    waiting = asyncio.create_task(window.room(4))
    await asyncio.sleep(0)
    assert not waiting.done()
    window.grow(3)
    assert await asyncio.wait_for(waiting, 5) == 3


async def test_a_window_that_was_overdrawn_opens_once_as_much_was_taken() -> None:
    window = SendWindow(4)
    window.spend(6)
    waiting = asyncio.create_task(window.room(4))
    window.grow(2)
    await asyncio.sleep(0)
    assert not waiting.done()
    window.grow(-5)  # no peer can close it
    window.grow(1)
    assert await asyncio.wait_for(waiting, 5) == 1
