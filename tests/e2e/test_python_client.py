"""`paceline.Client` and `paceline.AsyncClient` against a real coordinator with real ranks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

import paceline
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

STEPS = 60


@pytest.fixture
def client(own_stack: Stack) -> Iterator[paceline.Client]:
    with paceline.Client(own_stack.server, own_stack.api_key) as client:
        yield client


def test_a_job_from_submission_to_a_restore_in_place(client: paceline.Client) -> None:
    job = client.submit(tiny_gpt("by-client", 2_000, checkpoint_every=20))
    points = client.follow_metrics(job.id, "loss")
    assert [next(points).step for _ in range(25)] == list(range(1, 26))
    client.pause("by-client")
    paused = client.wait(job.id, "paused", timeout=60)
    checkpoint = next(each for each in client.checkpoints(job.id) if each.step == 20)
    assert client.pin(checkpoint.id).pinned
    again = client.restore(checkpoint.id, in_place=True, steps=40)
    assert (again.id, again.state) == (job.id, "queued")
    done = client.wait(job.id, timeout=90)
    assert (done.state, done.progress.step, done.generations[-1].restored_checkpoint_id) == ("completed", 40, checkpoint.id)
    rest = list(points)  # the steps of both generations; step 21 came to the same bits again, and is told once
    assert [point.step for point in rest if point.generation == done.generation] == list(range(22, 41))
    assert [point.step for point in rest if point.generation == paused.generation] == list(range(26, paused.progress.step + 1))
    assert [step for step, _ in client.curve(job.id)] == list(range(1, 41))
    assert any("step" in line.text for line in client.logs(job.id))
    assert "job.set_back" in [event.type for event in client.events(job.id)]
    assert client.cluster().slots_total == 2


def test_neither_points_nor_lines_are_lost_with_the_coordinator(own_stack: Stack, client: paceline.Client) -> None:
    """It is killed while a job is followed, and comes back at its port."""
    job = client.submit(tiny_gpt("followed", 150))
    points, lines = client.follow_metrics(job.id, "loss"), client.logs(job.id, follow=True)
    seen = [next(points) for _ in range(5)]
    first = next(lines)
    own_stack.kill_coordinator()
    back = threading.Thread(target=own_stack.up, args=(own_stack.port,))
    back.start()
    seen += points
    rest = list(lines)
    back.join(60)
    assert [point.step for point in seen] == list(range(1, 151))
    assert client.wait(job.id).state == "completed"
    places = [line.seq for line in (first, *rest)]
    assert places == sorted(set(places))
    assert places == [line.seq for line in client.logs(job.id)]


def test_the_same_awaited(own_stack: Stack) -> None:
    async def story() -> tuple[str, list[int], int]:
        async with paceline.AsyncClient(own_stack.server, own_stack.api_key) as client:
            job = await client.submit(tiny_gpt("awaited", STEPS))
            steps = [point.step async for point in client.follow_metrics(job.id, "loss")]
            done, nodes = await asyncio.gather(client.wait(job.id), client.nodes())
            return done.state, steps, len(nodes)

    assert asyncio.run(story()) == ("completed", list(range(1, STEPS + 1)), 2)
