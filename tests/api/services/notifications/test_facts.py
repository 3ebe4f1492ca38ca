"""From the history to deliveries: one for each fact and rule, whichever coordinator reads, however often, and wherever it stops."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from paceline.api.core.identity import SYSTEM
from paceline.api.services.ingest.bad_losses import BadLossReport, LossReporter, record_bad_loss
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.notifications import facts
from paceline.api.settings import Settings
from paceline.db.models.events import EventRow
from paceline.db.repositories import notifications as rows
from paceline.db.session import open_databases
from tests import factories
from tests.api.services.notifications.conftest import News
from tests.factories import START

FAILURE = {
    "kind": "exception",
    "rank": 1,
    "node_name": "node-b",
    "generation": 1,
    "message": "no such word: 'zebra'",
    "exception": "builtins.KeyError",
    "where": "lookup in data.py:6",
}


async def test_a_failure_says_who_where_and_why(news: News) -> None:
    await news.channel()
    await news.rule("failed")
    job = await news.job("gpt-long", failure=FAILURE, progress={"step": 1200, "total_steps": 5000}, created_by="vera")
    await news.end(job)
    await news.read()
    (told,) = await news.deliveries()
    assert told["title"] == "Job gpt-long failed: rank 1 on node-b raised KeyError: no such word: 'zebra' (lookup in data.py:6)"
    assert (told["state"], told["attempts"], told["job_id"]) == ("pending", 0, job.id)
    await news.deliver()
    got = news.receiver.received[0].document
    assert got["url"] == f"http://127.0.0.1:8000/jobs/{job.id}"
    assert got["job"] | {"id": ""} == {
        "id": "", "name": "gpt-long", "project": "default", "state": "running", "created_by": "vera", "step": 1200, "total_steps": 5000
    }  # fmt: skip
    assert got["failure"] == {
        "rank": 1,
        "node": "node-b",
        "kind": "builtins.KeyError",
        "message": "no such word: 'zebra'",
        "where": "lookup in data.py:6",
    }
    assert got["details"]["Step"] == "1,200 of 5,000"


async def test_every_fact_is_told_once_by_each_rule_that_asks_for_it(news: News) -> None:
    await news.channel()
    await news.channel("other")
    await news.rule("failed", "finished")
    await news.rule("failed", channel="other")
    await news.rule("failed", project="vision")
    await news.end(await news.job("a"))
    await news.end(await news.job("b"), "completed")
    for _ in range(3):
        await news.read()
    assert sorted((each["channel_name"], each["event"]) for each in await news.deliveries()) == [
        ("hook", "failed"),
        ("hook", "finished"),
        ("other", "failed"),
    ]


async def test_what_was_before_the_rule_is_not_told(news: News) -> None:
    await news.channel()
    await news.end(await news.job("before"))
    await news.rule("failed")
    await news.end(await news.job("after"))
    await news.read()
    assert [each["title"].split()[1] for each in await news.deliveries()] == ["after"]


async def test_two_coordinators_that_read_at_once_tell_once(news: News, settings: Settings) -> None:
    await news.channel()
    await news.rule("failed")
    for n in range(30):
        await news.end(await news.job(f"j-{n}"))
    control, metrics = open_databases(settings.data, settings.database_url)
    other = replace(news.services, control=control) if settings.database_url else news.services
    await asyncio.gather(*(facts.read_events(each, START) for each in (news.services, other, news.services, other)))
    await news.read()
    await control.close()
    await metrics.close()
    assert sorted(each["title"].split()[1] for each in await news.deliveries()) == sorted(f"j-{n}" for n in range(30))


async def test_a_coordinator_that_dies_before_it_commits_tells_in_the_next_life(news: News, monkeypatch: pytest.MonkeyPatch) -> None:
    await news.channel()
    await news.rule("failed")
    await news.end(await news.job())
    stored = facts.store

    async def dies(*arguments: object) -> None:
        await stored(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(facts, "store", dies)
        with pytest.raises(KeyboardInterrupt):
            await news.read()
    assert await news.deliveries() == []
    await news.read()
    await news.read()
    assert len(await news.deliveries()) == 1


async def test_a_thousand_steps_of_nan_are_one_notification_of_each_generation(news: News) -> None:
    await news.channel()
    await news.rule("nan")
    job = await news.job()
    for generation in (1, 2):
        async with news.services.write() as session:
            for step in range(500):
                told = BadLossReport(step=step, what="not_finite", act="warn", loss=float("nan"))
                await record_bad_loss(session, job, {}, told, LossReporter(SYSTEM, generation), START)
    await news.read()
    first, second = await news.deliveries()
    assert first["event"] == second["event"] == "nan"
    assert "step 0" in first["title"]


async def test_a_members_rule_is_about_their_own_jobs(news: News) -> None:
    await news.channel()
    async with news.services.write() as session:
        vera, key = await factories.create_user(session, name="vera", role="member")
    news.client.headers["Authorization"] = f"Bearer {key}"
    await news.rule("failed", mine=True)
    await news.end(await news.job("hers", created_by_id=vera.id))
    await news.end(await news.job("other"))
    await news.read()
    assert [each["title"].split()[1] for each in await news.deliveries()] == ["hers"]


async def test_nothing_is_made_for_a_channel_that_is_off(news: News) -> None:
    channel = await news.channel()
    await news.rule("failed")
    await news.client.patch(f"/api/v1/notifications/channels/{channel['id']}", json={"enabled": False})
    await news.end(await news.job())
    await news.read()
    assert await news.deliveries() == []


async def test_a_history_of_ten_thousand_events_is_read_to_its_end(news: News) -> None:
    await news.channel()
    await news.rule("failed")
    job = await news.job()
    async with news.services.write() as session:
        for n in range(10_000):
            data = {"from": "stopping", "to": "failed" if n % 20 == 0 else "running"}
            await job_lifecycle.record_event(session, job, "job.state", SYSTEM, "c", "m", START, data)
    await news.read()
    async with news.services.control.read() as session:
        assert len(await rows.deliveries_page(session, channel_id=None, state="pending", before=None, limit=1000)) == 500


async def test_a_good_end_says_how_far_it_came_and_a_decision_is_not_said_twice(news: News) -> None:
    await news.channel()
    await news.rule("failed", "finished", "cancelled")
    ended: dict[str, Any] = {"started_at": START, "ended_at": START + timedelta(hours=62), "ran_seconds": 24.0}
    await news.end(await news.job("done", progress={"step": 450, "total_steps": 450}, **ended), "completed", "all its ranks are gone")
    await news.end(await news.job("never-ran"), "cancelled", "all its ranks are gone")
    await news.end(await news.job("lost", failure=FAILURE), cause=f"rank 1: {FAILURE['message']}; the last of 3 restarts is used up")
    await news.end(await news.job("bare", failure=FAILURE), cause=f"rank 1: {FAILURE['message']}")
    await news.read()
    for _ in range(2):
        await news.deliver()
    said = {each.document["job"]["name"]: each.document for each in news.receiver.received}
    assert said["done"]["title"] == "Job done finished at step 450, after 24 s", "without the weekend for which it was paused"
    assert said["done"]["details"]["Ran for"] == "24 s"
    assert "Ran for" not in said["never-ran"]["details"]
    assert said["never-ran"]["title"] == "Job never-ran was cancelled"
    assert said["lost"]["details"]["What follows"] == "the last of 3 restarts is used up"
    assert "What follows" not in said["bare"]["details"]


async def test_an_event_that_cannot_be_read_keeps_no_other_from_being_told(news: News, caplog: pytest.LogCaptureFixture) -> None:
    """The cursor stayed before it, and no fact of any job was told any more: one event of a later version was enough."""
    caplog.set_level("CRITICAL")
    await news.channel()
    await news.rule("failed", "finished")
    bad = await news.job("bad")
    for to in ("of a later version", "of another"):
        await news.end(bad, to)
    await news.end(await news.job("good"))
    await news.end(bad, "completed")
    await news.read()
    assert [(each["title"].split()[1], each["event"]) for each in await news.deliveries()] == [("good", "failed"), ("bad", "finished")]
    async with news.services.control.read() as session:
        (told,) = (await session.scalars(select(EventRow).where(EventRow.type == "job.held_up"))).all()
    assert told.job_id == bad.id
    assert told.message.startswith("held up: cannot send notifications of its events: ValueError: ")
