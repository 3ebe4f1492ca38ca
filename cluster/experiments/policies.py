"""Which policy chooses the trials of an experiment, and those that are no grid: a search that draws values, a halving of either. Pure but
for Optuna, which a search imports."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from paceline.cluster.experiments import halving
from paceline.cluster.experiments.facts import Rung
from paceline.cluster.experiments.halving import HalvingTrial
from paceline.cluster.experiments.policy import GridPolicy, KnownTrial, Policy, Prune, Wishes, interleaved, trials_left
from paceline.cluster.experiments.rungs import rung_steps
from paceline.cluster.experiments.search import PastTrial, propose
from paceline.cluster.experiments.search_space import Values
from paceline.cluster.experiments.spec import ExperimentSpec


def policy_of(spec: ExperimentSpec) -> Policy:
    chosen: Policy = GridPolicy() if spec.search is None else SearchPolicy()
    return chosen if spec.halving is None else HalvingPolicy(chosen)


@dataclass(frozen=True)
class SearchPolicy:
    """Draws new values whenever there is room for a trial, from all that was drawn before."""

    def wishes(self, spec: ExperimentSpec, trials: Sequence[KnownTrial], most_new: int) -> Wishes:
        assert spec.search is not None
        by_configuration = sorted(trials, key=lambda trial: (trial.configuration, trial.repeat))
        history = [past_of(list(repeats)) for _, repeats in groupby(by_configuration, key=lambda trial: trial.configuration)]
        proposals = list[Values]()
        left, is_finished = spec.search.trials - len(history), False
        while len(proposals) < min(left, -(-most_new // spec.repeats)) and not is_finished:
            values = propose(spec.search, spec.metric, history)
            if values is None:
                is_finished = True
            else:
                proposals.append(values)
                history.append(PastTrial(values, "running"))
        waiting = interleaved([trial for trial in trials if trial.state == "waiting"])
        return Wishes(order=waiting, proposals=proposals, is_exhausted=is_finished or len(proposals) >= left)


@dataclass(frozen=True)
class HalvingPolicy:
    """Resumes the best of those that rest at a rung, and prunes those that will never be among them.

    The paper promotes before it starts another configuration, since there is always another. Trials of an experiment are so many: those
    that wait start first, which makes better promotions and leaves no slot idle. With a budget of slots or time the end may never come, and
    promotions go first. A trial that no node would hold is not waited for, and takes no place at a rung."""

    chosen: Policy = field(default_factory=GridPolicy)  # of the trials that have not begun

    def wishes(self, spec: ExperimentSpec, trials: Sequence[KnownTrial], most_new: int) -> Wishes:
        assert spec.halving is not None
        steps = rung_steps(spec)
        may_begin = trials_left(spec, trials) > 0
        coming = [trial for trial in trials if not trial.never_fits and (may_begin or trial.state != "waiting")]
        known = [as_halving_trial(trial) for trial in coming]
        decision = halving.decide(spec.metric, spec.halving, steps, known)
        begin = self.chosen.wishes(spec, trials, most_new)
        promoted = [each.index for each in decision.promote]
        has_limit = spec.budget.slot_hours is not None or spec.budget.wall_time is not None
        late = [] if begin.proposals and not has_limit else promoted  # what is drawn now waits for its turn, which comes first
        return replace(
            begin,
            order=[*promoted, *begin.order] if has_limit else [*begin.order, *late],
            prunes=[Prune(each.index, each.why) for each in decision.prune],
            is_exhausted=begin.is_exhausted and not any(trial.moves for trial in known if trial.state != "waiting"),
            new_rungs={trial.index: rung for trial in trials if (rung := new_rung(trial, steps)) is not None},
            reasons={each.index: each.why for each in decision.promote},
        )


def as_halving_trial(trial: KnownTrial) -> HalvingTrial:
    return HalvingTrial(trial.index, trial.state, trial.step, tuple(trial.rungs))


def new_rung(trial: KnownTrial, steps: Sequence[int]) -> Rung | None:
    """Return the next rung that a trial has come to and that is not noted: it rests there with its metric read, or has passed it because
    its ranks were lost in the moment of the pause."""
    if trial.state not in ("running", "paused", "completed") or len(trial.rungs) == len(steps):
        return None
    rung = steps[len(trial.rungs)]
    rests = trial.step == rung and trial.has_final_metric
    return Rung(rung, trial.metric) if rests or trial.step > rung else None


def past_of(repeats: Sequence[KnownTrial]) -> PastTrial:
    """Return one configuration with all its repeats as a search learns from it: by its median where it ended, else by its highest rung."""
    values, states = repeats[0].values, {trial.state for trial in repeats}
    if states <= {"cancelled"}:
        return PastTrial(values, "left_out")
    completed = [trial.metric for trial in repeats if trial.state == "completed"]
    if completed and not any(trial.is_awaited for trial in repeats):
        return PastTrial(values, "completed", _median(completed))
    reached = max((len(trial.rungs) for trial in repeats if trial.state != "failed"), default=0)
    if reached:
        rungs = [trial.rungs[reached - 1] for trial in repeats if len(trial.rungs) >= reached]
        return PastTrial(values, "stopped_early", _median([rung.value for rung in rungs]), rungs[0].steps)
    return PastTrial(values, "failed" if states <= {"failed", "refused", "cancelled"} else "running")


def _median(values: Sequence[float | None]) -> float | None:
    """The median; None: one of them is not finite."""
    finite = [value for value in values if value is not None]
    return statistics.median(finite) if len(finite) == len(values) else None
