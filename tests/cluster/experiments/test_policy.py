"""The order in which a grid's trials are wanted."""

from __future__ import annotations

from statistics import mean

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.experiments.facts import Rung
from paceline.cluster.experiments.policy import GridPolicy, interleaved
from tests.cluster.experiments.specs import experiment, trial


@given(configurations=st.integers(1, 12), rounds=st.integers(1, 5))
def test_a_round_begins_when_all_of_the_one_before_are_named(configurations: int, rounds: int) -> None:
    trials = [trial(c * rounds + r, configuration=c, repeat=r) for c in range(configurations) for r in range(rounds)]
    repeats = [trials[index].repeat for index in interleaved(trials)]
    assert repeats == sorted(repeats)


@given(configurations=st.integers(1, 12), pairs=st.integers(1, 3))
def test_over_two_rounds_no_configuration_is_earlier_than_another(configurations: int, pairs: int) -> None:
    rounds = 2 * pairs
    trials = [trial(c * rounds + r, configuration=c, repeat=r) for c in range(configurations) for r in range(rounds)]
    order = interleaved(trials)
    places = {mean(order.index(c * rounds + r) for r in range(rounds)) for c in range(configurations)}
    assert len(places) == 1, "a machine that gets slower at a steady pace slows all of them alike"


def test_a_grid_wants_what_waits_and_nothing_else() -> None:
    trials = [trial(0, state="completed"), trial(1), trial(2, state="paused"), trial(3, state="refused"), trial(4)]
    wishes = GridPolicy().wishes(experiment(), trials, 2)
    assert (list(wishes.order), wishes.is_exhausted) == ([1, 4], True)


def test_a_trial_at_a_rung_is_not_paused_by_hand() -> None:
    at_rung = trial(0, state="paused", step=10, rungs=[Rung(10, 0.5)])
    assert (at_rung.rests_at_rung, at_rung.is_paused_by_hand) == (True, False)
    assert trial(0, state="paused", step=12, rungs=[Rung(10, 0.5)]).is_paused_by_hand
