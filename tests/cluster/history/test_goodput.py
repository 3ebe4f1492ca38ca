"""Every second of a job has exactly one cause."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.history.goodput import (
    Cause,
    Fault,
    GenerationFacts,
    GoodputInputs,
    Interval,
    StatePeriod,
    StepRun,
    account,
    disjoint,
    overlay,
    without,
)
from paceline.cluster.states import JobState


def step_run(generation: int, step: int, began: float, ended: float) -> StepRun:
    return StepRun(generation, step, step, began, ended, ended - began)


#: Placed at 0, first step at 3; two steps of a second, a save of half a second, one more step.
QUIET = GoodputInputs(
    began=0.0,
    now=8.0,
    state_periods=[
        StatePeriod(0.0, JobState.STARTING),
        StatePeriod(2.0, JobState.RUNNING),
        StatePeriod(7.0, JobState.STOPPING),
        StatePeriod(8.0, JobState.COMPLETED),
    ],
    generations=[GenerationFacts(1, 0, started=0.0, ended=7.0, placed=True, saved=6.75)],
    step_runs=[step_run(1, 1, 3.0, 4.0), step_run(1, 2, 4.0, 5.0), step_run(1, 3, 5.5, 6.5)],
    faults=[],
)


def test_a_quiet_run_is_starting_stepping_saving_and_stopping() -> None:
    result = account(QUIET)
    assert {cause: seconds for cause, seconds in result.parts.items() if seconds} == {
        Cause.STARTING: 3.0,
        Cause.STEPPING: 3.0,
        Cause.EVALUATING_AND_SAVING: 0.75,
        Cause.STOPPING: 1.25,  # for the first quarter of a second nobody had heard yet that the ranks were done
    }
    assert (result.wall, result.goodput, result.useful_steps, result.redone_steps) == (8.0, 3 / 8, 3, 0)


def test_steps_done_again_after_a_restart_count_once() -> None:
    """Saved at 1, killed in step 4 at 6.75, started again from step 1 at 10."""
    facts = replace(
        QUIET,
        now=15.0,
        state_periods=[
            StatePeriod(0.0, JobState.STARTING),
            StatePeriod(2.0, JobState.RUNNING),
            StatePeriod(7.0, JobState.RECOVERING),
            StatePeriod(11.0, JobState.RUNNING),
        ],
        generations=[GenerationFacts(1, 0, 0.0, 7.0, placed=True), GenerationFacts(2, 1, 9.0, None, placed=True)],
        step_runs=[*QUIET.step_runs, *(step_run(2, step, 10.0 + step, 11.0 + step) for step in (2, 3))],
        faults=[Fault("a", 1, 2, step=3, began=6.75, ended=13.0)],
    )
    result = account(facts)
    assert (result.useful_steps, result.redone_steps) == (3, 2)
    assert result.parts[Cause.STEPPING] == 3.0  # step 1 of the first generation, 2 and 3 of the second
    assert result.parts[Cause.REDONE] == 2.25  # steps 2 and 3, and what of step 4 was done by 6.75
    assert result.parts[Cause.INCIDENT] == result.by_incident["a"] == 5.25  # up to the first step's begin
    assert sum(result.parts.values()) == result.wall == 15.0


def test_a_step_whose_record_died_with_its_rank_is_a_step_nevertheless() -> None:
    """The survivors go on from step 4: they have it, though rank 0 was killed before it could tell."""
    facts = replace(
        QUIET,
        generations=[GenerationFacts(1, 0, 0.0, 7.0, placed=True), GenerationFacts(2, 4, 7.0, None, placed=False)],
        step_runs=[*QUIET.step_runs, step_run(2, 5, 7.0, 7.5)],
        faults=[Fault("a", 1, 2, step=4, began=6.75, ended=7.5)],
    )
    result = account(facts)
    assert (result.useful_steps, result.redone_steps) == (5, 0)


def test_a_step_whose_record_died_with_its_rank_and_that_was_done_again_is_counted() -> None:
    """The newest save is of step 1. The killed rank 0 had reported two steps of the three that all ranks finished."""
    facts = replace(
        QUIET,
        generations=[GenerationFacts(1, 0, 0.0, 7.0, placed=True), GenerationFacts(2, 1, 7.0, None, placed=False)],
        step_runs=[*QUIET.step_runs[:2], *(step_run(2, step, 5.0 + step, 6.0 + step) for step in (2, 3, 4))],
        faults=[Fault("a", 1, 2, step=3, began=6.75, ended=8.0)],
    )
    result = account(facts)
    assert (result.useful_steps, result.redone_steps) == (4, 2)


def test_paused_time_is_its_users() -> None:
    paused = [
        StatePeriod(0.0, JobState.STARTING),
        StatePeriod(2.0, JobState.RUNNING),
        StatePeriod(6.5, JobState.STOPPING, pausing=True),
    ]
    facts = replace(QUIET, state_periods=[*paused, StatePeriod(7.0, JobState.PAUSED), StatePeriod(107.0, JobState.QUEUED)], now=109.0)
    result = account(facts)
    assert (result.wall, result.paused) == (9.0, 100.0)
    assert (result.parts[Cause.PAUSING], result.parts[Cause.WAITING]) == (0.25, 2.0)  # half a second, of which it saved the half


def test_an_outage_belongs_to_the_newest_fault() -> None:
    two = [Fault("a", 1, 2, step=2, began=5.2, ended=None), Fault("b", 2, 3, step=2, began=6.2, ended=7.0)]
    result = account(replace(QUIET, faults=two, step_runs=QUIET.step_runs[:2], generations=[GenerationFacts(1, 0, 0.0, 5.25, placed=True)]))
    assert result.by_incident == {"a": pytest.approx(1.0), "b": pytest.approx(0.8)}
    assert result.parts[Cause.REDONE] == pytest.approx(0.2)


def test_between_two_sizes_it_resizes() -> None:
    facts = replace(
        QUIET,
        generations=[GenerationFacts(1, 0, 0.0, 5.0, placed=True), GenerationFacts(2, 2, 4.5, 7.0, placed=False, saved=6.75)],
        step_runs=[*QUIET.step_runs[:2], step_run(2, 3, 5.5, 6.5)],
    )
    assert account(facts).parts[Cause.RESIZING] == 0.5


def test_a_run_of_many_steps_is_shared_out_where_a_restart_cuts_it() -> None:
    """Ten steps in 20 s, of which 5 s lay between them; the last four were done again."""
    first, again = StepRun(1, 1, 10, 0.0, 20.0, 15.0), StepRun(2, 7, 10, 20.0, 26.0, 6.0)
    facts = GoodputInputs(
        0.0, 26.0, [], [GenerationFacts(1, 0, 0.0, 20.0, True), GenerationFacts(2, 6, 20.0, None, False)], [first, again], []
    )
    parts = account(facts).parts
    assert (parts[Cause.STEPPING], parts[Cause.REDONE], parts[Cause.EVALUATING_AND_SAVING]) == (15.0, 6.0, 5.0)


def test_a_job_that_took_no_step_has_no_goodput() -> None:
    assert account(replace(QUIET, step_runs=[])).goodput is None
    assert account(replace(QUIET, step_runs=[], now=0.0, state_periods=[])).wall == 0.0


def test_a_script_without_reports_runs_and_its_steps_are_unknown() -> None:
    parts = account(replace(QUIET, step_runs=[], tells_steps=False)).parts
    assert (parts[Cause.STARTING], parts[Cause.UNACCOUNTED], parts[Cause.STOPPING]) == (2.0, 5.0, 1.0)


def any_facts(rng: random.Random) -> GoodputInputs:
    """Anything at all, whether it can happen or not: clocks jump, faults overlap, generations are cut off."""

    def moment() -> float:
        return rng.choice([rng.uniform(-20, 120), float(rng.randint(0, 100))])

    state_periods = [
        StatePeriod(time, rng.choice(list(JobState)), rng.random() < 0.2) for time in sorted(moment() for _ in range(rng.randint(0, 12)))
    ]
    numbers = range(1, rng.randint(1, 6))
    generations = [
        GenerationFacts(
            number, rng.randint(0, 30), moment(), rng.choice([None, moment()]), rng.random() < 0.5, rng.choice([None, moment()])
        )
        for number in numbers
    ]
    step_runs: list[StepRun] = []
    for number in numbers:
        step, at = rng.randint(0, 30), moment()
        for _ in range(rng.randint(0, 15)):
            count, length = rng.choice([1, 1, 1, 10]), rng.uniform(0, 4)
            at += rng.choice([0.0, rng.uniform(-1, 3)])
            step_runs.append(StepRun(number, step + 1, step + count, at, at + length, rng.uniform(0, 5)))
            step, at = step + count, at + length
    faults = [
        Fault(f"f{n}", rng.randint(1, 6), rng.choice([None, n]), rng.randint(0, 40), moment(), rng.choice([None, moment()]))
        for n in range(rng.randint(0, 5))
    ]
    return GoodputInputs(
        began=0.0, now=rng.uniform(0, 100), state_periods=state_periods, generations=generations, step_runs=step_runs, faults=faults
    )


@settings(deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_the_parts_are_never_negative_and_add_up_to_the_wall(rng: random.Random) -> None:
    facts = any_facts(rng)
    result = account(facts)
    assert all(seconds >= 0 for seconds in result.parts.values())
    assert sum(result.parts.values()) == pytest.approx(result.wall)
    assert result.wall + result.paused == pytest.approx(facts.now - facts.began)
    assert sum(result.by_incident.values()) == pytest.approx(result.parts[Cause.INCIDENT])
    assert result.redone_steps >= 0
    assert result.goodput is None or 0 <= result.goodput <= 1


@settings(deadline=None)
@given(rng=st.randoms(use_true_random=False))
def test_painting_covers_what_was_there_and_nothing_else(rng: random.Random) -> None:
    """Moment by moment, against the definition: the upper layer where it is, else the lower one."""

    def layer(cause: Cause) -> list[Interval]:
        return disjoint(
            Interval(began, began + rng.randint(0, 5), cause) for began in (rng.randint(0, 40) for _ in range(rng.randint(0, 8)))
        )

    below, above = layer(Cause.WAITING), layer(Cause.STEPPING)
    painted, left = overlay(below, above), without(below, above)
    for at in (half / 2 + 0.25 for half in range(100)):
        under, over, seen, kept = (
            next((span.cause for span in spans if span.began <= at < span.ended), None) for spans in (below, above, painted, left)
        )
        assert seen == (over or under if under else None), (at, below, above, painted)
        assert kept == (None if over else under), (at, below, above, left)
