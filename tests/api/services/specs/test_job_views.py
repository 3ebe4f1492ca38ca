"""What is read out of rows before anything is decided on them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from paceline.api.services.specs.job_views import USEFUL, USEFUL_STEPS, describe_failure, join_failures_of, report_of, stall_of, stepless
from paceline.cluster.states import RankState
from paceline.db.models.jobs import GenerationRow, RankRow
from tests.factories import START

BRIEFLY, LONG = timedelta(seconds=1), USEFUL


def joiner(lived: timedelta, state: RankState = RankState.EXITED, *, message: str = "boom", **columns: Any) -> Any:
    """(a rank that was given a place, its generation, which began at step 100)."""
    failure = {"kind": "signal", "rank": 1, "message": message, "ordered": columns.pop("ordered", False)}
    facts = {"step": 100, "newcomer": True, "parked": False, "outcome": "failed", "failure": failure} | columns
    return RankRow(rank=1, state=state, updated_at=START + lived, **facts), GenerationRow(started_at=START, start_step=100)


def join_failures(*joiners: Any) -> list[str]:
    return [failure.why for failure in join_failures_of(joiners, START + LONG)]


def test_who_ends_while_it_is_parked_or_just_after_it_joined_came_to_nothing() -> None:
    assert join_failures(joiner(LONG, parked=True, message="parked"), joiner(BRIEFLY, message="joined")) == ["parked", "joined"]
    assert join_failures(joiner(BRIEFLY, failure=None)) == ["it exited without a report"]


def test_who_was_told_to_go_had_no_mishap() -> None:
    assert join_failures(joiner(BRIEFLY, parked=True, ordered=True), joiner(BRIEFLY, parked=True, outcome="released")) == []


def test_one_that_came_through_clears_the_account() -> None:
    failed, worked = joiner(BRIEFLY), joiner(LONG)
    assert join_failures(failed, failed, worked, failed) == ["boom"]
    assert join_failures(failed, joiner(BRIEFLY, RankState.RUNNING)) == []  # it works still
    assert join_failures(failed, joiner(BRIEFLY, RankState.MOVED)) == ["boom"]  # the next change came too soon to tell
    assert join_failures(failed, joiner(BRIEFLY, step=100 + USEFUL_STEPS)) == []  # it took steps: whatever ended it was not the slot
    assert join_failures(failed, joiner(BRIEFLY, step=99 + USEFUL_STEPS)) == ["boom", "boom"]


def dead_rank(number: int, failure: dict[str, Any]) -> RankRow:
    return RankRow(job_id="j", generation=2, rank=number, node_id="n", state=RankState.EXITED, step=7, updated_at=START, failure=failure)


def test_a_rank_that_dies_before_it_takes_its_new_place_is_told_of_under_its_new_number() -> None:
    """Of three ranks the second dies, and the third with it: by then it is to be rank 1 of two, and its process says 2."""
    said = {"kind": "signal", "rank": 2, "message": "killed by SIGKILL", "time": 1.0, "ended": [1]}
    dead = [dead_rank(0, said | {"rank": 0, "time": 2.0}), dead_rank(1, said)]
    failure = describe_failure(dead, {"n": "node-a"})
    assert failure is not None
    assert (failure["rank"], failure["step"], [victim["rank"] for victim in failure["victims"]]) == (1, 0, [0])
    report = report_of(dead[1])
    assert report is not None
    assert (report.rank, report.ended) == (1, ()), "whom it saw end is by the numbers of the generation before"


def test_a_report_that_cannot_be_read_still_says_that_the_rank_failed() -> None:
    report = report_of(dead_rank(0, {"kind": "nonsense", "rank": "x"}))
    assert report is not None
    assert (report.kind, report.rank) == ("exit", 0)
    assert "cannot be read" in report.message
    assert stall_of(RankRow(stall={"step": "x"})) is None


def generation(start_step: int, *, first_step: bool = False) -> GenerationRow:
    return GenerationRow(start_step=start_step, first_step_at=START if first_step else None)


def test_generations_without_a_step_are_counted_back_to_the_last_that_made_one() -> None:
    assert stepless([generation(7), generation(7), generation(7)]) == 3
    assert stepless([generation(7), generation(7), generation(5, first_step=True), generation(5)]) == 2
    assert stepless([generation(7, first_step=True), generation(7)]) == 0
    assert stepless([generation(7), generation(5), generation(5)]) == 1, "its steps were told too late to be noted with it"
    assert stepless([generation(0), generation(7), generation(7)]) == 3, "all have gone back to a checkpoint"
