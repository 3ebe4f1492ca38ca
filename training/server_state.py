"""The state of a job with parameter servers from one generation to the next: which ranks hold it, and how a broken step is finished.

Parameters are at every rank, as old as its last pull; a server's shard of them is always up to date, and only there is the optimizer's state of
that shard. So the ranks of a generation go on if every server of the job is among them, at its place, and then everyone pulls. If one is
missing, all go back to the newest checkpoint.

A step that some rank has committed while others broke off is finished by the servers that had not: they have all that its update needs
(`ShardUpdate`), for no rank commits a step before every server has its sums.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import nn

from paceline.distributed import env
from paceline.parallelism.deferred import at_once
from paceline.parallelism.gradients import clip_by_norm, gradients_of
from paceline.parallelism.parameter_server.served_model import shards_of
from paceline.parallelism.plan import Coordinates
from paceline.parallelism.running_statistics import RunningStatistics
from paceline.training.elastic import RankStateSummary, StateAgreement, agreement_on
from paceline.training.optim.optimizers import set_learning_rates
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport, TrainState, make_optimizer, make_task, seed_everything


def agree(summaries: Sequence[RankStateSummary], servers: int) -> StateAgreement | None:
    """Determine the newest committed step, if the first `servers` ranks hold what its servers held. Pure.

    Nothing is transferred: every rank pulls from the servers. Returns None if no rank has started, or a server is lost: then a checkpoint
    is to be loaded, or the job starts.
    """
    if not any(each.started for each in summaries):
        return None
    step = max(each.step for each in summaries if each.started)
    if step > 0 and not all(can_serve(each, step, number, servers) for number, each in enumerate(summaries[:servers])):
        return None
    ahead = [rank for rank, each in enumerate(summaries) if each.started and each.step == step]
    nodes = [each.computed_nodes if rank in ahead and rank >= servers else () for rank, each in enumerate(summaries)]
    return agreement_on(step, summaries, ahead, (), nodes)


def can_serve(summary: RankStateSummary, step: int, number: int, servers: int) -> bool:
    """Whether a rank holds shard `number` as it is after `step`, or can bring it there by itself."""
    is_server = summary.started and summary.part == (("server", number, servers),)
    return is_server and (summary.step == step or (summary.step == step - 1 and summary.updatable_step == step))


def take_part(spec: JobSpec, state: TrainState, coordinates: Coordinates) -> None:
    """Leave the optimizer only what this rank updates: a server its shard, a worker nothing. A server that stays one keeps its state."""
    servers, part = coordinates.degrees.servers, coordinates.state_shard
    shards = shards_of(state.model, servers)
    own = set(shards[coordinates.rank].trainable) if coordinates.is_server else set()
    held = {parameter for group in state.optimizer.param_groups for parameter in group["params"]}
    if state.part == part and held <= own:
        return
    state.set_optimizer(restricted(make_optimizer(spec, state.task), own))
    state.part, state.pending_update = part, None


def restricted(optimizer: torch.optim.Optimizer, own: Collection[nn.Parameter]) -> torch.optim.Optimizer:
    """Take all parameters but `own` out of a fresh optimizer. Its groups stay, so that learning rates are the same on every rank."""
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if parameter in own]
    return optimizer


def finish_update(spec: JobSpec, state: TrainState, agreement: StateAgreement) -> None:
    """On a server that broke off in a step which others have committed, apply the update as they did.

    Does nothing anywhere else. The caller then takes the agreement over.
    """
    update = state.pending_update
    state.pending_update = None
    if update is None or state.step >= agreement.step:
        return
    report = report_of(agreement, update.step)
    if not report.applied:
        return
    update.put(RunningStatistics(state.model))
    set_learning_rates(state.optimizer, state.peak_rates, spec.schedule, update.step, state.total_steps)
    gradients = gradients_of(parameter for parameter, _ in update.gradients)
    clip_by_norm(gradients, torch.tensor(report.gradient_norm), derived.training_of(spec).gradient_clip_norm)
    state.apply_update()


def report_of(agreement: StateAgreement, step: int) -> StepReport:
    """Return the report of a committed step, which the ranks that committed it have."""
    return next(report for report in reversed(agreement.reports) if report.step == step)


@torch.no_grad()
def start_over(spec: JobSpec, state: TrainState) -> None:
    """Make the state that of step 0 again, built from the seed: a server was lost, and there may be no checkpoint."""
    seed_everything(state.device, derived.training_of(spec).seed, 0, 0)
    fresh = make_task(spec, env.cache_directory(), at_once).model
    for mine, built in zip((*state.model.parameters(), *state.model.buffers()), (*fresh.parameters(), *fresh.buffers()), strict=True):
        mine.copy_(built)
    own = {parameter for group in state.optimizer.param_groups for parameter in group["params"]}
    state.set_optimizer(restricted(make_optimizer(spec, state.task), own))
