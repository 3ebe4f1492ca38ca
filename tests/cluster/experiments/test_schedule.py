"""What an experiment does next, whatever its trials come to: played through against a cluster that is made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.experiments.policies import SearchPolicy
from paceline.cluster.experiments.policy import GridPolicy, KnownTrial, Prune, Wishes
from paceline.cluster.experiments.schedule import ENDED, Decision, ExperimentState, Usage, decide
from paceline.cluster.experiments.spec import ExperimentSpec
from tests.cluster.experiments.specs import experiment, trial

#: An experiment of six trials is over long before.
MOST_TURNS = 200


def decided(
    trials: Sequence[KnownTrial], *, state: ExperimentState = "running", free: int = 8, usage: Usage | None = None, **spec: Any
) -> Decision:
    return decide(experiment(**spec), state, trials, usage or Usage(free), GridPolicy())


def kinds(decision: Decision) -> list[tuple[str, int]]:
    return [(action.kind, action.trial) for action in decision.actions]


def running(index: int, **changes: Any) -> KnownTrial:
    return trial(index, state="running", is_active=True, **changes)


def queued(index: int, **changes: Any) -> KnownTrial:
    return running(index, is_queued=True, **changes)


# --- starting


def test_free_slots_are_filled_and_one_more_trial_waits_in_the_queue() -> None:
    assert kinds(decided([trial(0), trial(1), trial(2)], free=2)) == [("start", 0), ("start", 1)]
    assert kinds(decided([running(0), running(1), trial(2), trial(3)], free=0)) == [("start", 2)]
    assert kinds(decided([running(0), running(1), queued(2), trial(3)], free=0)) == []


def test_at_once_is_the_most_that_run_side_by_side_also_while_one_still_stops() -> None:
    assert kinds(decided([trial(0), trial(1)], at_once=1)) == [("start", 0)]
    stopping = running(0, is_cancelling=True)
    assert kinds(decided([stopping, trial(1)], at_once=1)) == []


def test_a_trial_that_no_node_would_hold_does_not_hold_up_the_others() -> None:
    large = queued(0, world_size=64, never_fits="needs 64 slots, and the cluster has 2")
    assert kinds(decided([large, trial(1)], at_once=1, free=2)) == [("start", 1)]
    assert kinds(decided([large, trial(1)], free=2, budget={"trials": 1})) == [("start", 1)], "it uses up no budget"


def test_a_search_draws_on_beside_a_trial_that_no_node_would_hold() -> None:
    large = queued(0, values={"resources.slots": 8}, world_size=8, never_fits="needs 8 slots, and the cluster has 2")
    search = {"trials": 3, "parameters": {"resources.slots": [1, 2, 8]}}
    spec = experiment(search=search, at_once=1)
    assert len(decide(spec, "running", [large], Usage(2), SearchPolicy()).proposals) == 1


def test_a_trial_whose_plan_cannot_be_chosen_before_a_node_is_here_waits_and_holds_up_no_other() -> None:
    assert kinds(decided([trial(0, lacks_nodes=True), trial(1)], free=0)) == [("start", 1)]
    left = decided([trial(0, lacks_nodes=True), trial(1, state="completed")])
    assert (kinds(left), left.becomes) == ([], None)


def test_what_no_node_would_hold_is_refused_in_the_end_with_the_reason() -> None:
    large = queued(0, world_size=64, never_fits="needs 64 slots, and the cluster has 2")
    assert kinds(decided([large])) == [], "nothing has run: nodes may still come"
    assert kinds(decided([large, running(1)])) == []
    (action,) = decided([large, trial(1, state="completed")]).actions
    assert (action.kind, action.trial) == ("refuse", 0)
    assert "needs 64 slots, and the cluster has 2" in action.why
    asked = [queued(0, never_fits="needs 64 slots", is_cancelling=True), trial(1, state="completed")]
    assert kinds(decided(asked)) == []
    assert decided([trial(0, state="refused"), trial(1, state="completed")]).becomes == "completed"


def test_a_large_trial_keeps_its_turn() -> None:
    assert kinds(decided([running(0), queued(1, world_size=2), trial(2)], free=1)) == []


# --- states


def test_pausing_pauses_what_runs_and_starts_nothing_and_then_it_is_settled() -> None:
    trials = [running(0), queued(1), running(2, is_pausing=True), running(3, can_pause=False), trial(4)]
    decision = decided(trials, state="paused")
    assert (kinds(decision), decision.is_settled) == ([("pause", 0), ("pause", 1)], False)
    rest = [trial(0, state="paused", paused_for="experiment"), running(3, can_pause=False), trial(4)]
    assert decided(rest, state="paused") == Decision(actions=[], is_settled=True)


def test_resuming_goes_on_with_what_had_begun_and_leaves_alone_what_somebody_paused() -> None:
    begun, by_hand = trial(5, state="paused", paused_for="experiment"), trial(6, state="paused")
    assert kinds(decided([trial(0), begun, by_hand], at_once=1)) == [("resume", 5)]
    assert decided([by_hand]) == Decision(actions=[]), "it waits for whoever paused it"


def test_cancelling_ends_every_trial_that_has_not_ended() -> None:
    trials = [running(0), trial(1), trial(2, state="paused"), trial(3, state="completed"), running(4, is_cancelling=True)]
    assert kinds(decided(trials, state="cancelled")) == [("cancel", 0), ("cancel", 1), ("cancel", 2)]


def test_it_has_ended_with_its_last_trial() -> None:
    ended = [trial(0, state="completed"), trial(1, state="failed"), trial(2, state="refused")]
    assert decided(ended).becomes == "completed"
    assert decided([*ended, running(3)]).becomes is None
    assert decided(ended, state="completed").is_settled


# --- budgets


def test_a_budget_of_slot_hours_pauses_what_runs() -> None:
    spent = decided([running(0), trial(1)], usage=Usage(8, slot_seconds=3600.0), budget={"slot_hours": 1})
    assert (kinds(spent), spent.becomes, spent.why) == ([("pause", 0)], "stopped", "budget.slot_hours=1 is used up")
    assert decided([running(0)], usage=Usage(8, slot_seconds=3599.0), budget={"slot_hours": 1}).becomes is None


def test_a_budget_of_time_counts_while_it_is_not_paused() -> None:
    assert decided([trial(0)], usage=Usage(8, running_seconds=60.0), budget={"wall_time": "1m"}).becomes == "stopped"


def test_a_budget_of_trials_lets_those_that_run_end() -> None:
    assert kinds(decided([trial(0), trial(1), trial(2)], budget={"trials": 2})) == [("start", 0), ("start", 1)]
    assert decided([running(0), trial(1)], budget={"trials": 1}) == Decision(actions=[])
    assert decided([trial(0, state="completed"), trial(1)], budget={"trials": 1}).becomes == "stopped"
    assert decided([trial(0, state="completed"), trial(1, state="completed")], budget={"trials": 2}).becomes == "completed"


def test_what_was_stopped_for_its_budget_goes_on_with_a_larger_one() -> None:
    assert kinds(decided([trial(0, state="paused", paused_for="budget")], budget={"slot_hours": 2})) == [("resume", 0)]


# --- other policies


@dataclass
class Fixed:
    """A policy with one answer."""

    answer: Wishes

    def wishes(self, spec: ExperimentSpec, trials: Sequence[KnownTrial], most_new: int) -> Wishes:
        return self.answer


def test_what_a_policy_gives_up_is_pruned_and_not_resumed_at_once() -> None:
    resting = trial(0, state="paused", paused_for="rung")
    policy = Fixed(Wishes(order=[0, 1], prunes=[Prune(0, "worse")]))
    assert kinds(decide(experiment(), "running", [resting, trial(1)], Usage(8), policy)) == [("prune", 0), ("start", 1)]


def test_what_nobody_wants_any_more_is_pruned_at_the_end() -> None:
    resting = trial(0, state="paused", paused_for="rung")
    decision = decide(experiment(), "running", [resting, trial(1, state="completed")], Usage(8), Fixed(Wishes()))
    assert (kinds(decision), decision.becomes) == ([("prune", 0)], "completed")


def test_a_search_that_has_more_to_draw_is_not_over() -> None:
    policy = Fixed(Wishes(proposals=[{"optimizer.lr": 0.1}], is_exhausted=False))
    assert decide(experiment(), "running", [], Usage(8), policy).becomes is None
    done = [trial(0, state="completed")]
    assert decide(experiment(budget={"trials": 1}), "running", done, Usage(8), Fixed(Wishes(is_exhausted=False))).becomes == "stopped"


# --- played through


@dataclass
class Cluster:
    """Trials whose jobs do what is asked of them, one thing at a time and in any order."""

    spec: ExperimentSpec
    trials: list[KnownTrial]
    slots: int
    state: ExperimentState = "running"
    starts: list[int] = field(default_factory=list)

    def turn(self) -> Decision:
        held = sum(each.world_size for each in self.trials if each.is_active and not each.is_queued)
        decision = decide(self.spec, self.state, self.trials, Usage(self.slots - held), GridPolicy())
        for action in decision.actions:
            self._ask(action.kind, action.trial)
        self.state = decision.becomes or self.state
        return decision

    def _ask(self, kind: str, index: int) -> None:
        if kind == "start":
            self.starts.append(index)
            self._set(index, state="running", is_active=True, is_queued=True)
        elif kind == "resume":
            self._set(index, state="running", is_active=True, is_queued=True, paused_for=None)
        elif kind == "pause":
            self._set(index, is_pausing=True, paused_for="experiment")
        elif self.trials[index].is_active:
            self._set(index, is_cancelling=True)
        else:
            self._set(index, state="cancelled")

    def place(self) -> None:
        for each in self.trials:
            held = sum(other.world_size for other in self.trials if other.is_active and not other.is_queued)
            if each.is_queued and not each.is_pausing and held + each.world_size <= self.slots:
                self._set(each.index, is_queued=False)

    def happen(self, place: int, ending: str) -> None:
        """Let something happen to one of the active trials."""
        active = [each for each in self.trials if each.is_active]
        if not active:
            return
        one = active[place % len(active)]
        if one.is_cancelling:
            self._set(one.index, state="cancelled", is_active=False, is_queued=False)
        elif one.is_pausing:
            self._set(one.index, state="paused", is_active=False, is_queued=False, is_pausing=False)
        elif not one.is_queued:
            self._set(one.index, state=ending, is_active=False)

    def _set(self, index: int, **changes: Any) -> None:
        self.trials[index] = replace(self.trials[index], **changes)


happenings = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["completed", "failed"]), st.sampled_from(["", "", "", "paused"])), max_size=40
)


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    slots=st.integers(3, 5),
    at_once=st.none() | st.integers(1, 3),
    script=happenings,
)
def test_every_trial_starts_once_and_the_experiment_ends(
    sizes: list[int], slots: int, at_once: int | None, script: list[tuple[int, str, str]]
) -> None:
    cluster = Cluster(experiment(at_once=at_once), [trial(index, world_size=size) for index, size in enumerate(sizes)], slots)
    for turn in range(MOST_TURNS):
        place, ending, wish = script[turn] if turn < len(script) else (turn, "completed", "")
        cluster.turn()
        active = sum(each.is_active for each in cluster.trials)
        assert at_once is None or active <= at_once
        assert not cluster.turn().actions or cluster.state == "completed", "asked again, there is nothing new to do"
        cluster.place()
        cluster.happen(place, ending)
        if cluster.state == "running" and wish:
            cluster.state = "paused"
        elif cluster.state == "paused" and not any(each.is_active for each in cluster.trials):
            cluster.state = "running"
        if cluster.state == "completed":
            break
    assert cluster.state == "completed", cluster.trials
    assert sorted(cluster.starts) == list(range(len(sizes))), "each exactly once"
    assert all(each.state in ENDED for each in cluster.trials)
