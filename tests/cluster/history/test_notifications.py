"""Which events are news, which rule asks for them, and under which key each is told once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paceline.cluster.history.notifications import (
    Fact,
    NotificationEvent,
    RecordedEvent,
    RuleView,
    fact_of,
    goodput_is_low,
    queued_fact,
    shortest_wait,
    wants,
)
from tests.factories import START

ALL = frozenset(NotificationEvent)
FAILED = Fact(NotificationEvent.FAILED, "failed:7", "j", 7)


@pytest.mark.parametrize(
    ("type", "before", "after", "expected"),
    [
        ("job.state", "stopping", "failed", NotificationEvent.FAILED),
        ("job.state", "queued", "failed", NotificationEvent.FAILED),
        ("job.state", "stopping", "completed", NotificationEvent.FINISHED),
        ("job.state", "queued", "cancelled", NotificationEvent.CANCELLED),
        ("job.state", "running", "recovering", NotificationEvent.DEGRADED),
        ("job.state", "recovering", "recovering", None),
        ("job.state", "starting", "running", None),
        ("job.closed_up", "running", "recovering", NotificationEvent.DEGRADED),
        ("job.fell_back", "running", "recovering", NotificationEvent.DEGRADED),
        ("job.shrank", "running", "resizing", None),
        ("job.set_back", "failed", "queued", None),
        ("job.edited", None, None, None),
        ("rank.exited", None, None, None),
    ],
)
def test_an_event_is_the_news_that_it_records(type: str, before: str | None, after: str | None, expected: NotificationEvent | None) -> None:
    fact = fact_of(RecordedEvent(7, type, "j", 1, before, after))
    assert (fact and fact.event) is expected
    assert fact is None or (fact.key, fact.seq) == (f"{expected}:7", 7)


def test_all_bad_losses_of_a_generation_are_one_fact() -> None:
    first, second, later = (
        fact_of(RecordedEvent(seq, "job.loss_not_finite", "j", generation)) for seq, generation in ((7, 1), (8, 1), (9, 2))
    )
    assert first is not None
    assert second is not None
    assert later is not None
    assert first.key == second.key != later.key


@pytest.mark.parametrize(
    ("rule", "is_wanted"),
    [
        (RuleView("r", ALL), True),
        (RuleView("r", frozenset({NotificationEvent.FINISHED})), False),
        (RuleView("r", ALL, project="vision"), True),
        (RuleView("r", ALL, project="text"), False),
        (RuleView("r", ALL, owner_id="vera"), True),
        (RuleView("r", ALL, owner_id="ada"), False),
        (RuleView("r", ALL, from_seq=6), True),
        (RuleView("r", ALL, from_seq=7), False),
    ],
)
def test_a_rule_is_about_events_projects_and_users_from_its_beginning_on(rule: RuleView, is_wanted: bool) -> None:
    assert wants(rule, FAILED, project="vision", owner_id="vera") is is_wanted


def test_a_job_without_a_user_is_nobodys_own() -> None:
    assert not wants(RuleView("r", ALL, owner_id="vera"), FAILED, project="vision", owner_id=None)


def test_the_disk_is_of_no_job() -> None:
    disk = Fact(NotificationEvent.DISK_LOW, "disk_low:1")
    assert wants(RuleView("r", ALL), disk, project=None, owner_id=None)
    assert not wants(RuleView("r", ALL, owner_id="vera"), disk, project=None, owner_id=None)


def test_a_job_that_is_queued_again_waits_anew() -> None:
    assert queued_fact("j", START).key == queued_fact("j", START).key != queued_fact("j", START + timedelta(seconds=1)).key


def test_the_shortest_wait_is_looked_for() -> None:
    long = frozenset({NotificationEvent.QUEUED_LONG})
    rules = [RuleView("a", long, queued_minutes=60), RuleView("b", long, queued_minutes=5), RuleView("c", frozenset(), queued_minutes=1)]
    assert shortest_wait(rules) == timedelta(minutes=5)
    assert shortest_wait([]) is None


def test_goodput_that_was_low_has_to_come_back_clearly() -> None:
    assert [goodput_is_low(goodput, 0.8, was_low=False) for goodput in (0.79, 0.8)] == [True, False]
    assert [goodput_is_low(goodput, 0.8, was_low=True) for goodput in (0.81, 0.83)] == [True, False]
