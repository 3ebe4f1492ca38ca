"""`paceline.Client` and `paceline.AsyncClient` against a real coordinator with real ranks."""

from __future__ import annotations

import asyncio
import re
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import paceline
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

STEPS = 60


@pytest.fixture
def client(own_stack: Stack) -> Iterator[paceline.Client]:
    with paceline.Client(own_stack.server, own_stack.api_key) as client:
        yield client


def test_a_job_from_submission_to_a_restore_in_place(client: paceline.Client) -> None:
    job = client.submit(tiny_gpt("by-client", 2_000, checkpoint={"every_steps": 20, "keep_last": 100}))  # it may be far ahead of its points
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
    readings = client.follow_readings(client.nodes()[0].name)
    assert next(readings).node_id == client.nodes()[0].id
    readings.close()


def blocks_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "python_client.md").read_text()
    return [textwrap.dedent(block) for block in re.findall(r"^    .*\n(?:^    .*(?:\n|\Z)|^\n)+", page, re.MULTILINE)]


def test_the_lines_of_the_page_run_as_they_stand(own_stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small job in the place of the example that they name."""
    lines, of_an_experiment, _ = blocks_of_the_page()
    assert "examples/gpt_stdlib.yaml" in lines
    spec = tiny_gpt("of-the-page", 30, checkpoint_every=10)
    spec["training"] |= {"eval_every_steps": 10, "eval_samples": 8}
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "gpt_stdlib.yaml").write_text(yaml.safe_dump(spec))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACELINE_SERVER", own_stack.server)
    monkeypatch.setenv("PACELINE_API_KEY", own_stack.api_key)
    names: dict[str, Any] = {}
    exec(compile(lines, "docs/python_client.md", "exec"), names)
    client = names["client"]
    assert names["steps"] == tuple(range(1, 31))
    assert len(names["losses"]) == 30
    assert client.wait(names["job"].id, "running", timeout=60).generations[-1].restored_checkpoint_id == names["best"].id
    client.cancel(names["job"].id)
    exec(compile(of_an_experiment, "docs/python_client.md", "exec"), names)
    assert [trial.state for trial in client.trials("rates")] == ["completed"] * 3
    assert names["found"].best_trial in (0, 1, 2)
    assert "<html" in (tmp_path / "rates.html").read_text()
    client.close()


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
