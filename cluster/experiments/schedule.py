"""Which trials of an experiment to start, pause, resume and cancel now, and why; and when it has ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.cluster.experiments.facts import Rung, TrialState
from paceline.cluster.experiments.policy import KnownTrial, Policy, Wishes, trials_left
from paceline.cluster.experiments.spec import ExperimentSpec

#: `stopped`: its budget is used up.
ExperimentState = Literal["running", "paused", "completed", "stopped", "cancelled"]
#: `refuse`: the trial is given up because no node would hold it; it runs anew when the experiment is posted again.
ActionKind = Literal["start", "pause", "resume", "cancel", "prune", "refuse"]
#: Why the experiment paused a trial.
WITH_EXPERIMENT, BUDGET, RUNG = "experiment", "budget", "rung"
ENDED: frozenset[TrialState] = frozenset({"refused", "completed", "failed", "cancelled", "pruned"})


@dataclass(frozen=True)
class TrialAction:
    kind: ActionKind
    trial: int
    why: str
    rung: Rung | None = None


@dataclass(frozen=True)
class Usage:
    """The time and the slots that the experiment has used so far, and the slots that are free."""

    free_slots: int
    running_seconds: float = 0.0  # while it was not paused
    slot_seconds: float = 0.0


@dataclass(frozen=True)
class Decision:
    """`becomes` None: it stays in its state. `is_settled`: nothing more is to be done in this state until somebody asks for something."""

    actions: Sequence[TrialAction] = ()
    proposals: Sequence[Mapping[str, Any]] = ()
    new_rungs: Mapping[int, Rung] = field(default_factory=dict)
    becomes: ExperimentState | None = None
    why: str = ""
    is_settled: bool = False


def decide(spec: ExperimentSpec, state: ExperimentState, trials: Sequence[KnownTrial], usage: Usage, policy: Policy) -> Decision:
    """Return what to do next. Asked again after it is done, the answer is empty until something has changed."""
    if state == "cancelled":
        return _at_rest([TrialAction("cancel", each.index, "the experiment was cancelled") for each in trials if _may_cancel(each)], trials)
    if state == "paused":
        return _at_rest(list(_pauses(trials, "the experiment was paused")), trials)
    if state == "stopped":
        return _at_rest(list(_pauses(trials, "its budget is used up")), trials)
    if state == "completed":
        return Decision(is_settled=True)
    if why := _spent(spec, usage):
        return Decision(actions=list(_pauses(trials, why)), becomes="stopped", why=why)
    return _running(spec, trials, usage, policy)


def _running(spec: ExperimentSpec, trials: Sequence[KnownTrial], usage: Usage, policy: Policy) -> Decision:
    wishes = policy.wishes(spec, trials, _most_new(spec, trials, usage))
    actions = [TrialAction("pause", each.trial, each.why, each.rung) for each in wishes.pauses]
    actions += [TrialAction("prune", each.trial, each.why) for each in wishes.prunes]
    starts = list(_starts(spec, trials, usage, wishes))
    decision = Decision([*actions, *starts], wishes.proposals, wishes.new_rungs)
    if decision.actions or decision.proposals or decision.new_rungs:
        return decision
    active = [each for each in trials if each.is_active]
    if active:
        return Decision(list(_hopeless(active, trials)))
    return _end(spec, trials, wishes) or decision


def _hopeless(active: Sequence[KnownTrial], trials: Sequence[KnownTrial]) -> Iterator[TrialAction]:
    """The trials that are left and that no node would hold, once others have shown that the cluster is up: an experiment does not wait for ever for
    machines that nobody promised."""
    if any(each.state == "completed" for each in trials) and all(each.never_fits for each in active):
        for each in active:
            if not each.is_cancelling:
                yield TrialAction("refuse", each.index, f"it {each.never_fits}; post the experiment again once it can be held")


def _end(spec: ExperimentSpec, trials: Sequence[KnownTrial], wishes: Wishes) -> Decision | None:
    """The end of an experiment of which nothing is active and nothing is to be started; None: it waits for somebody, or for the last points of a
    trial."""
    if any(each.is_paused_by_hand or each.is_awaited for each in trials):
        return None
    left = [each for each in trials if each.state not in ENDED and each.index in wishes.order]
    if left or not wishes.is_exhausted:
        is_spent = trials_left(spec, trials) == 0
        return Decision(becomes="stopped", why=f"budget.trials={spec.budget.trials} trials have run") if is_spent else None
    resting = [TrialAction("prune", each.index, "others were better") for each in trials if each.state not in ENDED]
    return Decision(resting, becomes="completed", why="every trial has ended")


def _starts(spec: ExperimentSpec, trials: Sequence[KnownTrial], usage: Usage, wishes: Wishes) -> Iterator[TrialAction]:
    """The trials that there is room for: as many as `at_once` allows, or as fill the free slots and one more, which then waits in the queue so that
    no slot is idle while the next one is decided on."""
    by_index = {each.index: each for each in trials}
    leaving = {each.trial for each in wishes.pauses} | {each.trial for each in wishes.prunes}
    active = _in_place(trials)
    places = len(trials) if spec.at_once is None else spec.at_once - len(active)
    queued = [each for each in active if each.is_queued]
    waiting_slots, has_queued = sum(each.world_size for each in queued), bool(queued)
    allowance = trials_left(spec, trials)
    for index in _wanted(trials, wishes):
        trial = by_index[index]
        if index in leaving or not (_is_startable(trial) or _is_resumable(trial)):
            continue
        if places <= 0 or (has_queued and waiting_slots + trial.world_size > usage.free_slots):
            return
        if trial.state == "waiting":
            if allowance <= 0:
                continue
            allowance -= 1
        places, has_queued, waiting_slots = places - 1, True, waiting_slots + trial.world_size
        if trial.state == "waiting":
            yield TrialAction("start", index, f"its turn: repeat {trial.repeat + 1} of configuration {trial.configuration}")
        else:
            yield TrialAction("resume", index, wishes.reasons.get(index, "the experiment goes on"))


def _wanted(trials: Sequence[KnownTrial], wishes: Wishes) -> list[int]:
    """First what was paused with the experiment, or for its budget: it has begun already. Then what the policy wants."""
    paused = [each for each in trials if each.state == "paused" and each.paused_for in (WITH_EXPERIMENT, BUDGET)]
    begun = [each.index for each in paused if not each.rests_at_rung]
    return list(dict.fromkeys([*begun, *wishes.order]))


def _most_new(spec: ExperimentSpec, trials: Sequence[KnownTrial], usage: Usage) -> int:
    waiting = sum(each.state == "waiting" for each in trials)
    room = usage.free_slots + 1 if spec.at_once is None else spec.at_once - len(_in_place(trials))
    return max(0, min(room, trials_left(spec, trials)) - waiting)


def _in_place(trials: Sequence[KnownTrial]) -> list[KnownTrial]:
    """The active trials that count for `at_once`: those that no node would hold keep no other from its turn."""
    return [each for each in trials if each.is_active and not each.never_fits]


def _spent(spec: ExperimentSpec, usage: Usage) -> str | None:
    budget = spec.budget
    if budget.slot_hours is not None and usage.slot_seconds >= budget.slot_hours * 3600:
        return f"budget.slot_hours={budget.slot_hours:g} is used up"
    if budget.wall_time is not None and usage.running_seconds >= budget.wall_time:
        return f"budget.wall_time={budget.wall_time} s is used up"
    return None


def _at_rest(actions: list[TrialAction], trials: Sequence[KnownTrial]) -> Decision:
    moves = any(each.is_awaited or (each.is_active and each.can_pause) for each in trials)
    return Decision(actions, is_settled=not actions and not moves)


def _pauses(trials: Sequence[KnownTrial], why: str) -> Iterator[TrialAction]:
    for each in trials:
        if each.is_active and each.can_pause and not (each.is_pausing or each.is_cancelling):
            yield TrialAction("pause", each.index, why)


def _may_cancel(trial: KnownTrial) -> bool:
    return trial.state not in ENDED and not trial.is_cancelling


def _is_startable(trial: KnownTrial) -> bool:
    return trial.state == "waiting" and not trial.lacks_nodes


def _is_resumable(trial: KnownTrial) -> bool:
    return trial.state == "paused" and not trial.is_paused_by_hand and not trial.is_active
