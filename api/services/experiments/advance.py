"""One turn of an experiment: look at its trials, decide, and carry the decision out in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import cast

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import Services, nudge_after_commit
from paceline.api.services.experiments import experiments, trial_jobs, trial_metrics, trial_rows, views
from paceline.api.services.experiments.trial_jobs import Chosen
from paceline.api.services.experiments.trial_states import former_trial, known_trial, too_large_jobs
from paceline.api.services.lifecycle import experiment_lifecycle
from paceline.api.services.planning.plan_auto import ClusterChangedError
from paceline.api.services.scheduling import scaling_facts
from paceline.cluster.experiments.draws import cells_of_draw
from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.merging import merge
from paceline.cluster.experiments.policies import policy_of
from paceline.cluster.experiments.policy import KnownTrial
from paceline.cluster.experiments.schedule import BUDGET, RUNG, WITH_EXPERIMENT, Decision, ExperimentState, TrialAction, Usage, decide
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.cluster.states import NodeState
from paceline.db.models.experiments import ExperimentRow, TrialRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import experiments as rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows

#: Actions of one transaction; what is left comes in the next turn, at once.
MOST_ACTIONS = 32


@dataclass(frozen=True)
class ExperimentLook:
    """An experiment as it was read at one moment."""

    row: ExperimentRow
    spec: ExperimentSpec
    trials: Sequence[KnownTrial]
    usage: Usage

    @property
    def resumed_by_hand(self) -> set[int]:
        """The trials that the experiment had paused, and that somebody else has resumed: a later pause is not the experiment's."""
        return {each.index for each in self.trials if each.paused_for and each.is_active and not (each.is_pausing or each.is_cancelling)}

    async def decide(self) -> Decision:
        """Decide; of a search on a thread, since its sampler takes a while. Raises MissingOptunaError."""
        arguments = self.spec, cast("ExperimentState", self.row.state), self.trials, self.usage, policy_of(self.spec)
        return decide(*arguments) if self.spec.search is None else await asyncio.to_thread(decide, *arguments)


async def advance(services: Services, experiment_id: str, now: datetime) -> bool:
    """Take one turn. Returns whether something was done, so that another turn may find more."""
    look = await _look(services, experiment_id, now)
    if look is None:
        return False
    decision = await look.decide()
    starting = [action.trial for action in decision.actions[:MOST_ACTIONS] if action.kind == "start"]
    async with services.control.read() as session:
        documents = await rows.trial_rows(session, experiment_id, starting)
    chosen = await trial_jobs.resolved(services, documents)
    actions = [each for each in decision.actions[:MOST_ACTIONS] if each.kind != "start" or each.trial in chosen]
    if not (actions or decision.proposals or decision.new_rungs or decision.becomes or decision.is_settled or look.resumed_by_hand):
        return False
    try:
        async with services.write() as session:
            return await _carry_out(session, look, decision, actions, chosen, now)
    except ClusterChangedError:
        return False  # nodes came or went: plans are chosen again in the next turn


async def _look(services: Services, experiment_id: str, now: datetime) -> ExperimentLook | None:
    """Read an experiment with its trials, whose metrics are stored first; None: nothing is to be done with it."""
    async with services.control.read() as session:
        row = await rows.get(session, experiment_id)
        if row is None or row.settled:
            return None
        trials, nodes = await rows.trials(session, experiment_id), await node_rows.present(session)
        free_slots = await _free_slots(session, nodes)
    if await trial_metrics.refresh(services, row, trials, now):
        async with services.control.read() as session:
            trials = await rows.trials(session, experiment_id)
    spec = experiments.spec_of(row)
    async with services.control.read() as session:
        coming = await scaling_facts.held_by_pools(session, too_large_jobs(trials), now)
        sums = (await views.sums_of(session, [row], now))[row.id]
    has_nodes = any(node.state is not NodeState.JOINING for node in nodes)
    known = [known_trial(each, spec.job, coming, has_nodes=has_nodes) for each in trials]
    used = row.former_slot_seconds + sums.slot_seconds
    return ExperimentLook(row, spec, known, Usage(free_slots, _running_seconds(services, row, now), used))


def _running_seconds(services: Services, row: ExperimentRow, now: datetime) -> float:
    """How long the experiment has been running, without the step of the clock that the scheduler has not yet discounted."""
    running = (now - row.state_since).total_seconds() - services.uptime.clock_step if row.state == "running" else 0.0
    return max(0.0, row.ran_seconds + running)


async def _free_slots(session: AsyncSession, nodes: Sequence[NodeRow]) -> int:
    ready = [node for node in nodes if node.state is NodeState.READY]
    held = await slot_rows.held_slots(session, [node.id for node in ready])
    return sum(node.slots for node in ready) - len(held)


async def _carry_out(
    session: AsyncSession, look: ExperimentLook, decision: Decision, actions: Sequence[TrialAction], chosen: Chosen, now: datetime
) -> bool:
    """Do what was decided, if the experiment is still as it was looked at. Returns whether there may be more to do."""
    row = await rows.get_locked(session, look.row.id)
    if row is None or row.version != look.row.version:
        return True
    trials = await rows.trial_rows(session, row.id, {each.trial for each in actions} | set(decision.new_rungs) | look.resumed_by_hand)
    for index in look.resumed_by_hand:
        trials[index].paused_for = None
    for action in actions:
        if action.kind == "start":
            await trial_jobs.start(session, row, trials[action.trial], chosen[action.trial], now)
        else:
            await _ask(session, row, trials[action.trial], action, decision, now)
    for index, rung in decision.new_rungs.items():
        trials[index].rungs = [*trials[index].rungs, asdict(rung)]
    if decision.proposals:
        await _propose(session, row, look, decision, now)
    is_all = len(actions) == len(decision.actions)
    if decision.becomes is not None and is_all:
        before = row.state
        experiment_lifecycle.move(row, decision.becomes, decision.why, now)
        message = f"{before} -> {decision.becomes}"
        await experiments.record_event(session, row, "experiment.state", trial_jobs.actor_of(row), decision.why, message, now)
    row.settled = decision.is_settled and is_all
    nudge_after_commit(session, bus.EXPERIMENTS)
    return not row.settled


async def _ask(session: AsyncSession, row: ExperimentRow, trial: TrialRow, action: TrialAction, decision: Decision, now: datetime) -> None:
    if action.rung is not None:
        trial.rungs = [*trial.rungs, asdict(action.rung)]
    stops = row.state == "stopped" or decision.becomes == "stopped"
    paused_for = WITH_EXPERIMENT if row.state == "paused" else BUDGET if stops else RUNG
    await trial_jobs.carry_out(session, row, trial, action, paused_for, now)


async def _propose(session: AsyncSession, row: ExperimentRow, look: ExperimentLook, decision: Decision, now: datetime) -> None:
    """Store what a search proposes as new trials; what was left out when the experiment was posted again, and is drawn again, comes back."""
    spec, taken = look.spec, await rows.keys(session, row.id)
    next_index, next_configuration = await rows.next_numbers(session, row.id)
    cells = list[Cell]()
    for configuration, values in enumerate(decision.proposals, start=next_configuration):
        cells += cells_of_draw(spec, values, configuration, taken)
        taken |= {cell.key for cell in cells}
    known = {each.trial.index: each for each in await rows.former_trials(session, row.id)}
    former = [former_trial(each) for each in known.values()]
    change = merge(former, cells, next_index, keeps_pruned=spec.halving is not None)
    await trial_rows.apply(session, row, change, known, spec, now)
    await session.flush()
