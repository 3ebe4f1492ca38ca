"""What is read out of rows before anything is decided on them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from api.services.job_views import USEFUL, USEFUL_STEPS, mishaps_of
from cluster.states import RankState
from db.models.jobs import GenerationRow, RankRow
from tests.factories import START

BRIEFLY, LONG = timedelta(seconds=1), USEFUL


def joiner(lived: timedelta, state: RankState = RankState.EXITED, *, message: str = "boom", **columns: Any) -> Any:
    """(a rank that was given a place, its generation, which began at step 100)."""
    failure = {"kind": "signal", "rank": 1, "message": message, "ordered": columns.pop("ordered", False)}
    facts = {"step": 100, "newcomer": True, "parked": False, "outcome": "failed", "failure": failure} | columns
    return RankRow(rank=1, state=state, updated_at=START + lived, **facts), GenerationRow(started_at=START, start_step=100)


def mishaps(*joiners: Any) -> list[str]:
    return [mishap.why for mishap in mishaps_of(joiners, START + LONG)]


def test_who_ends_while_it_is_parked_or_just_after_it_joined_came_to_nothing() -> None:
    assert mishaps(joiner(LONG, parked=True, message="parked"), joiner(BRIEFLY, message="joined")) == ["parked", "joined"]
    assert mishaps(joiner(BRIEFLY, failure=None)) == ["it exited without a report"]


def test_who_was_told_to_go_had_no_mishap() -> None:
    assert mishaps(joiner(BRIEFLY, parked=True, ordered=True), joiner(BRIEFLY, parked=True, outcome="released")) == []


def test_one_that_came_through_clears_the_account() -> None:
    failed, worked = joiner(BRIEFLY), joiner(LONG)
    assert mishaps(failed, failed, worked, failed) == ["boom"]
    assert mishaps(failed, joiner(BRIEFLY, RankState.RUNNING)) == []  # it works still
    assert mishaps(failed, joiner(BRIEFLY, RankState.MOVED)) == ["boom"]  # the next change came too soon to tell
    assert mishaps(failed, joiner(BRIEFLY, step=100 + USEFUL_STEPS)) == []  # it took steps: whatever ended it was not the slot
    assert mishaps(failed, joiner(BRIEFLY, step=99 + USEFUL_STEPS)) == ["boom", "boom"]
