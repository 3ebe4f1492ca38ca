"""How the ranks of a generation come to one state: what they bring, who has come furthest, who sends it to whom.

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

from distributed.process_group import Group
from parallelism.mesh import local_part
from parallelism.plan import Coordinates, Deal, Part, deal_around
from parallelism.tree import Node, held_once, leaves_of
from training.renewal import put_back
from training.saving.shards import Tensors, put_tensors, tensors_of
from training.state import StepReport, TrainState
from training.steps.loss_scale import Unscaled

#: Rank 0 writes its records every 50 ms, or when a busy machine lets it; what it committed within this time of its death may not be on disk.
UNWRITTEN_SECONDS = 5.0


@dataclass(frozen=True)
class Standing:
    """What one rank brings to a new generation."""

    begun: bool
    step: int
    best: float | None
    scale: Unscaled
    unsettled: StepReport | None
    reports: tuple[StepReport, ...]  # its newest, oldest first
    led: bool  # it was rank 0 until now, and has written down every step it committed
    kept: tuple[Node, ...]  # the subtrees of the next step's micro-batches that it has computed already
    part: Part = ()  # what it holds of the state
    generation: int = 0  # the newest in which it had begun


@dataclass(frozen=True)
class Transfer:
    source: int
    target: int


@dataclass(frozen=True)
class Agreement:
    """The same on every rank."""

    step: int
    best: float | None
    scale: Unscaled
    unsettled: StepReport | None
    reports: tuple[StepReport, ...]
    untold: tuple[StepReport, ...]  # steps that no rank 0 is sure to have written down
    transfers: tuple[Transfer, ...]
    kept: tuple[tuple[Node, ...], ...]  # by rank: what need not be computed again; disjoint
    newcomers: tuple[int, ...]  # ranks that were not in an earlier generation


@dataclass(frozen=True)
class Rebuilt:
    """A generation of living processes, and when it came to be: wall clock of this rank."""

    agreement: Agreement | None  # None: a part of the state was lost, and all went back
    step: int  # the committed one from which it goes on
    entered_at: float  # out of the old generation, in the new one's place
    joined_at: float  # the group stands
    agreed_at: float  # every rank has the state


def standing(state: TrainState, *, led: bool) -> Standing:
    kept = tuple(state.partial.sums) if state.partial else ()
    part = state.held.part if state.held else ()
    reports = tuple(state.reports)
    return Standing(state.begun, state.step, state.best, state.scale, state.unsettled, reports, led, kept, part, state.generation)


def agree(standings: Sequence[Standing], parts: Sequence[Part] | None = None) -> Agreement | None:
    """`parts`: what each rank is to hold; default: all of the state. None where nobody has begun, or a part of the state is missing:
    then there is a checkpoint to load, or the job starts."""
    wanted = parts or [()] * len(standings)
    step = newest_whole_step(standings, wanted)
    if step is None:
        return None
    ahead = [rank for rank, each in enumerate(standings) if holds(each, step, wanted[rank])]
    behind = [rank for rank in range(len(standings)) if rank not in ahead and step > 0]  # all are built alike: at step 0 nobody is
    truth = standings[ahead[0]]
    return Agreement(
        step=step,
        best=truth.best,
        scale=truth.scale,
        unsettled=next((standings[rank].unsettled for rank in ahead if standings[rank].unsettled), None),
        reports=truth.reports,
        untold=tuple(untold(truth.reports, standings)),
        transfers=tuple(transfers_to(behind, ahead, wanted)),
        kept=held_once([each.kept if rank in ahead else () for rank, each in enumerate(standings)]),
        newcomers=tuple(rank for rank, each in enumerate(standings) if not each.begun),
    )


def newest_whole_step(standings: Sequence[Standing], wanted: Sequence[Part]) -> int | None:
    """Committed steps differ by one at most, but not every part need be there at the newest of them."""
    steps = sorted({each.step for each in standings if each.begun}, reverse=True)
    return next((step for step in steps if step == 0 or parts_at(step, standings, wanted) == set(wanted)), None)


def parts_at(step: int, standings: Sequence[Standing], wanted: Sequence[Part]) -> set[Part]:
    return {part for each, part in zip(standings, wanted, strict=True) if holds(each, step, part)}


def holds(standing: Standing, step: int, part: Part) -> bool:
    return standing.begun and standing.step == step and (standing.part == part or step == 0)


def transfers_to(behind: Sequence[int], ahead: Sequence[int], wanted: Sequence[Part]) -> Iterator[Transfer]:
    """The holders of each part serve in turn."""
    sources = {part: cycle([rank for rank in ahead if wanted[rank] == part]) for part in set(wanted)}
    return (Transfer(next(sources[wanted[rank]]), rank) for rank in behind)


def first_deal(micro_batches: int, coordinates: Coordinates, agreement: Agreement | None) -> Deal:
    """Of a generation's first step: around what its ranks have computed of it already. Only whole models keep anything, of which each rank is
    a data rank."""
    if agreement is None or not any(agreement.kept):
        return coordinates.deal(micro_batches)
    return deal_around(micro_batches, [leaves_of(nodes, micro_batches) for nodes in agreement.kept], coordinates.data_rank)


def untold(reports: Sequence[StepReport], standings: Iterable[Standing]) -> Iterable[StepReport]:
    """What rank 0 has not written down: of one that is here all it did not commit, of one that is gone its last moments."""
    leader = next((each for each in standings if each.led), None)
    if leader is not None:
        return (report for report in reports if report.step > leader.step)
    newest = reports[-1].time if reports else 0.0
    return (report for report in reports if report.time > newest - UNWRITTEN_SECONDS)


def take(state: TrainState, group: Group, agreement: Agreement) -> None:
    """Bring this rank's state to what was agreed: send it, receive it, put back what was held of it, or leave it as it is."""
    mine = [each for each in agreement.transfers if group.rank in (each.source, each.target)]
    receives = any(each.target == group.rank for each in mine)
    if mine or state.held:
        tensors = tensors_of(state)
        if state.held and not receives:
            put_back(state.held, tensors)
        exchange(tensors, group, mine)
        if state.held or receives:
            put_tensors(state, tensors)
    state.held = None  # not before: should the others break off in here, it is all that there is
    state.step, state.best, state.scale = agreement.step, agreement.best, agreement.scale
    state.unsettled, state.begun = agreement.unsettled, True
    state.keep(agreement.step, agreement.kept[group.rank])
    state.reports.clear()
    state.reports.extend(agreement.reports)


def exchange(tensors: Tensors, group: Group, transfers: Sequence[Transfer]) -> None:
    """Parameters, buffers and optimizer state, or this rank's part of them, one message for each type of number."""
    for kind, parts in by_type(tensors).items():
        flat = flatten(parts, kind)
        for each in transfers:
            if each.source == group.rank:
                group.send(flat, each.target)
            else:
                group.receive(flat, each.source)
                unflatten(flat, parts)


def by_type(tensors: dict[str, Any]) -> dict[torch.dtype, list[Tensor]]:
    """In an order that all ranks share: that of the names."""
    found: dict[torch.dtype, list[Tensor]] = {}
    for part in sorted(tensors):
        for name in sorted(tensors[part]):
            value = tensors[part][name]
            if isinstance(value, Tensor):
                found.setdefault(value.dtype, []).append(local_part(value.detach()))
    return found


def flatten(parts: Sequence[Tensor], kind: torch.dtype) -> Tensor:
    """One contiguous message; on the device of the largest part, since scalars of an optimizer stay on the host."""
    device = max(parts, key=lambda part: part.numel()).device
    return torch.cat([part.detach().reshape(-1).to(device, kind) for part in parts])


@torch.no_grad()
def unflatten(flat: Tensor, parts: Sequence[Tensor]) -> None:
    for part, piece in zip(parts, torch.split(flat, [part.numel() for part in parts]), strict=True):
        part.copy_(piece.view(part.shape))
