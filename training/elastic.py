"""How the ranks of a generation come to one state: what each brings, which is furthest, and which rank sends to which.

A rank that lost its peers in a step may or may not have committed it: the sums of that step had reached some and not others.
So committed steps differ by one at most, and the most advanced state is the truth. Ranks that already have it get nothing; nor does
one that is new where no step is committed yet, since a state that was just built is the same everywhere. What ranks have computed of
the step after it stays with them, and only the rest of that step is dealt out.

Where ranks hold parts of the state, the truth is the newest step of which every part is there, at a rank that has the same place in the
new world as in the old one. If a part is missing there is none, and all go back to a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from paceline.distributed.process_group import Group
from paceline.parallelism.mesh import local_tensor
from paceline.parallelism.plan import Coordinates, MicroBatchAssignment, StateShard, assign_remaining, assign_to_workers
from paceline.parallelism.tree import TreeNode, deduplicate_subtrees, leaves_of
from paceline.training.data.sizes import sizes_of
from paceline.training.errors import StateTransferError
from paceline.training.optim.loss_guard import LossGuard
from paceline.training.optim.loss_scale import Unscaled
from paceline.training.saving.shards import OPTIMIZER, Tensors, leave_out, put_tensors, tensors_of
from paceline.training.state import StepReport, TrainState
from paceline.training.state_handoff import numbers_in, put_numbers, restore_shards

#: Rank 0 writes its records every 50 ms, or when a busy machine lets it; what it committed within this time of its death may not be on disk.
UNWRITTEN_SECONDS = 5.0


@dataclass(frozen=True)
class RankStateSummary:
    """Summary of one rank's state on entering a new generation, gathered by all ranks."""

    started: bool
    step: int
    best: float | None
    scale: Unscaled
    guard: LossGuard
    pending_step: StepReport | None
    reports: tuple[StepReport, ...]  # its newest, oldest first
    was_leader: bool  # it was rank 0 until now, and has written down every step it committed
    computed_nodes: tuple[TreeNode, ...]  # the subtrees of the next step's micro-batches that it has computed already
    part: StateShard = ()  # what it holds of the state
    generation: int = 0  # the newest in which it had begun
    updatable_step: int = 0  # a parameter server: the step whose update it can finish by itself; 0: none
    data: str = ""  # the sizes of the data that it sees


@dataclass(frozen=True)
class StateTransfer:
    source: int
    target: int


@dataclass(frozen=True)
class StateAgreement:
    """State that all ranks of a generation agree on, and the transfers that bring them to it; the same on every rank."""

    step: int
    best: float | None
    scale: Unscaled
    guard: LossGuard
    pending_step: StepReport | None
    reports: tuple[StepReport, ...]
    unreported: tuple[StepReport, ...]  # steps that no rank 0 is sure to have written down
    transfers: tuple[StateTransfer, ...]
    computed_nodes: tuple[tuple[TreeNode, ...], ...]  # by rank: what need not be computed again; disjoint
    newcomers: tuple[int, ...]  # ranks that were not in an earlier generation


@dataclass(frozen=True)
class RecoveryReport:
    """Times of the recovery into a generation of living processes, by this rank's wall clock, and the agreement reached."""

    agreement: StateAgreement | None  # None: a part of the state was lost, and all went back
    step: int  # the committed one from which it goes on
    entered_at: float  # out of the old generation, in the new one's place
    joined_at: float  # the group stands
    agreed_at: float  # every rank has the state


def summarize_state(state: TrainState, *, was_leader: bool) -> RankStateSummary:
    computed_nodes = tuple(state.partial.sums) if state.partial else ()
    part = state.held.part if state.held else state.part
    reports = tuple(state.reports)
    return RankStateSummary(
        state.started,
        state.step,
        state.best,
        state.scale,
        state.guard,
        state.pending_step,
        reports,
        was_leader,
        computed_nodes,
        part,
        state.generation,
        state.pending_update.step if state.pending_update else 0,
        sizes_of(state.task),
    )


def agree(summaries: Sequence[RankStateSummary], parts: Sequence[StateShard] | None = None) -> StateAgreement | None:
    """Determine the newest state that is complete among the ranks, and which rank sends it to which. Pure.

    `parts` gives the part of the state that each rank is to hold; by default all of it. Returns None if no rank has started, or a part is
    missing at every step: then a checkpoint is to be loaded, or the job starts.
    """
    wanted = parts or [()] * len(summaries)
    step = newest_whole_step(summaries, wanted)
    if step is None:
        return None
    ahead = [rank for rank, each in enumerate(summaries) if holds(each, step, wanted[rank])]
    behind = [rank for rank in range(len(summaries)) if rank not in ahead and step > 0]  # all are built alike: at step 0 no rank is
    computed_nodes = [each.computed_nodes if rank in ahead else () for rank, each in enumerate(summaries)]
    return agreement_on(step, summaries, ahead, tuple(transfers_to(behind, ahead, wanted)), computed_nodes)


def agreement_on(
    step: int,
    summaries: Sequence[RankStateSummary],
    ahead: Sequence[int],
    transfers: tuple[StateTransfer, ...],
    computed_nodes: Sequence[Sequence[TreeNode]],
) -> StateAgreement:
    """Return the agreement on `step`, which the ranks `ahead` have committed. `computed_nodes`: what each rank may keep of the next one. Pure."""
    truth = summaries[ahead[0]]
    return StateAgreement(
        step=step,
        best=truth.best,
        scale=truth.scale,
        guard=truth.guard,
        pending_step=next((summaries[rank].pending_step for rank in ahead if summaries[rank].pending_step), None),
        reports=truth.reports,
        unreported=tuple(unreported(truth.reports, summaries)),
        transfers=transfers,
        computed_nodes=deduplicate_subtrees(computed_nodes),
        newcomers=tuple(rank for rank, each in enumerate(summaries) if not each.started),
    )


def newest_whole_step(summaries: Sequence[RankStateSummary], wanted: Sequence[StateShard]) -> int | None:
    """Return the newest committed step of which all parts exist, or None. Steps differ by one at most, but the newest may lack a part.

    Step 0 is none to come back to: a rank that has committed the first step does not have it any more, and nobody sends it.
    """
    steps = sorted({each.step for each in summaries if each.started}, reverse=True)
    return next((step for step in steps if steps == [0] or (step > 0 and parts_at(step, summaries, wanted) == set(wanted))), None)


def parts_at(step: int, summaries: Sequence[RankStateSummary], wanted: Sequence[StateShard]) -> set[StateShard]:
    return {part for each, part in zip(summaries, wanted, strict=True) if holds(each, step, part)}


def holds(summary: RankStateSummary, step: int, part: StateShard) -> bool:
    """Whether a rank has `part` of the state as it is after `step`. At step 0 every rank has all of it: all are built alike."""
    return summary.started and summary.step == step and (summary.part == part or step == 0)


def transfers_to(behind: Sequence[int], ahead: Sequence[int], wanted: Sequence[StateShard]) -> Iterator[StateTransfer]:
    """Assign a source to each rank that is behind; the ranks that hold a part serve in turn."""
    sources = {part: cycle([rank for rank in ahead if wanted[rank] == part]) for part in set(wanted)}
    return (StateTransfer(next(sources[wanted[rank]]), rank) for rank in behind)


def first_assignment(micro_batches: int, coordinates: Coordinates, agreement: StateAgreement | None) -> MicroBatchAssignment:
    """Return this rank's micro-batches of a generation's first step: those that no rank has computed yet.

    Only replicated models keep computed gradients, and there every rank is a data rank, but for parameter servers.
    """
    if agreement is None or not any(agreement.computed_nodes):
        return coordinates.assignment(micro_batches)
    servers = coordinates.degrees.servers
    kept = [leaves_of(nodes, micro_batches) for nodes in agreement.computed_nodes[servers:]]
    assignment = assign_remaining(micro_batches, kept, coordinates.data_rank)
    return assign_to_workers(assignment, servers, coordinates.data_rank) if servers else assignment


def unreported(reports: Sequence[StepReport], summaries: Iterable[RankStateSummary]) -> Iterable[StepReport]:
    """Return the reports that rank 0 has not surely written down.

    If the former rank 0 is among the ranks, these are the steps that it did not commit; if it is gone, the steps of its last
    UNWRITTEN_SECONDS.
    """
    leader = next((each for each in summaries if each.was_leader), None)
    if leader is not None:
        return (report for report in reports if report.step > leader.step)
    newest = reports[-1].time if reports else 0.0
    return (report for report in reports if report.time > newest - UNWRITTEN_SECONDS)


def apply_agreement(state: TrainState, group: Group, agreement: StateAgreement) -> None:
    """Bring this rank's state to the agreed one: send it, receive it, restore what was held on the host, or leave it as it is."""
    mine = [each for each in agreement.transfers if group.rank in (each.source, each.target)]
    receives = any(each.target == group.rank for each in mine)
    tensors = tensors_of(state) if mine or state.held else {}
    if state.held and not receives:
        restore_shards(state.held, tensors)
    if agreement.transfers:
        exchange(tensors, group, mine)
    if state.held or receives:
        put_tensors(state, tensors)
    state.held = None  # not before: should the others break off in here, it is all that there is
    state.step = agreement.step
    state.best = agreement.best
    state.scale = agreement.scale
    state.guard = agreement.guard
    state.pending_step = agreement.pending_step
    state.started = True
    state.keep_partial(agreement.step, agreement.computed_nodes[group.rank])
    state.reports.clear()
    state.reports.extend(agreement.reports)


def exchange(tensors: Tensors, group: Group, transfers: Sequence[StateTransfer]) -> None:
    """Transfer parameters, buffers and optimizer state, or this rank's part of them, in one message for each dtype. Collective, for the numbers among
    them and for the names of the optimizer's values: a new optimizer has some of parameters that others have never updated. `transfers`: those of this
    rank."""
    sends = any(each.source == group.rank for each in transfers)
    told = group.all_gather_object(
        (numbers_in(tensors), tuple(tensors["optimizer"]), tensor_names(tensors["optimizer"])) if sends else None
    )
    for each in transfers:
        if each.target == group.rank:
            _, names, with_tensors = told[each.source]
            leave_out(tensors["optimizer"], (OPTIMIZER + name for name in names))
            different = sorted(tensor_names(tensors["optimizer"]) ^ with_tensors)
            if different:
                raise StateTransferError(f"of this rank and rank {each.source} the optimizer of one alone keeps {', '.join(different[:3])}")
    received = []
    for kind, parts in by_type(tensors).items():
        flat = flatten(parts, kind)
        for each in transfers:
            if each.source == group.rank:
                group.send(flat, each.target)
            else:
                group.receive(flat, each.source)
                received.append((flat, parts))
    for flat, parts in received:  # not before all have come: a rank that loses its source between two keeps its own step whole
        unflatten(flat, parts)
    for each in transfers:
        if each.target == group.rank:
            put_numbers(told[each.source][0], tensors)


def tensor_names(flat: Tensors) -> frozenset[str]:
    return frozenset(name for name, value in flat.items() if isinstance(value, Tensor))


def by_type(tensors: dict[str, Any]) -> dict[torch.dtype, list[Tensor]]:
    """Group the tensors by dtype, in the order of their names, which all ranks share."""
    found: dict[torch.dtype, list[Tensor]] = {}
    for part in sorted(tensors):
        for name in sorted(tensors[part]):
            value = tensors[part][name]
            if isinstance(value, Tensor):
                found.setdefault(value.dtype, []).append(local_tensor(value.detach()))
    return found


def flatten(parts: Sequence[Tensor], kind: torch.dtype) -> Tensor:
    """Concatenate `parts` into one contiguous tensor on the device of the largest part: an optimizer's scalars stay on the host."""
    device = max(parts, key=lambda part: part.numel()).device
    return torch.cat([part.detach().reshape(-1).to(device, kind) for part in parts])


@torch.no_grad()
def unflatten(flat: Tensor, parts: Sequence[Tensor]) -> None:
    for part, piece in zip(parts, torch.split(flat, [part.numel() for part in parts]), strict=True):
        part.copy_(piece.view(part.shape))
