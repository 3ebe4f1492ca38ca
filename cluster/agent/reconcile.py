"""Desired against actual: what an agent should do next, and what it reports. Pure; calling it twice is harmless."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.agent.ranks import Phase, Rank
from cluster.agent.spawner_link import RankKey, key_of
from cluster.protocol import CheckpointToDelete, Desired, DesiredAssignment, Observed, ObservedAssignment, ObservedRank
from cluster.states import RankState
from training.link import World

#: For ranks that are no longer desired at all, so that no grace is given with them.
UNDESIRED_GRACE_SECONDS = 3.0
#: What an exited rank left behind is given up this long after, if the coordinator will not have it.
UNCLAIMED_SECONDS = 24 * 3600.0

Ranks = Mapping[RankKey, Rank]


@dataclass(frozen=True)
class StartRank:
    world: World
    spec: dict[str, Any]


@dataclass(frozen=True)
class PauseRank:
    key: RankKey


@dataclass(frozen=True)
class TerminateRank:
    """The spawner follows SIGTERM with SIGKILL after the grace, whether or not this agent still lives then."""

    key: RankKey
    grace_seconds: float


@dataclass(frozen=True)
class ForgetRank:
    key: RankKey


@dataclass(frozen=True)
class DeleteCheckpoint:
    checkpoint: CheckpointToDelete


Action = StartRank | PauseRank | TerminateRank | ForgetRank | DeleteCheckpoint


@dataclass(frozen=True)
class StoreNamespace:
    """A generation whose rendezvous store this node serves."""

    job_id: str
    generation: int
    token: str


def reconcile(desired: Desired, ranks: Ranks, now: float) -> list[Action]:
    """What brings the ranks closer to what is desired. `now` is the wall clock."""
    wanted = {key_of(world): (assignment, world) for assignment in desired.assignments for world in assignment.worlds}
    actions: list[Action] = []
    for key, rank in ranks.items():
        actions += _dismiss(rank, now) if key not in wanted else _steer(rank, wanted[key][0])
    for key, (assignment, world) in wanted.items():
        if key not in ranks and assignment.action == "run" and not _slot_taken(world, ranks):
            actions.append(StartRank(world, assignment.spec))
    actions += [DeleteCheckpoint(checkpoint) for checkpoint in desired.delete_checkpoints]
    return actions


def _dismiss(rank: Rank, now: float) -> list[Action]:
    if rank.ending is None:
        return [] if rank.stopping else [TerminateRank(rank.key, UNDESIRED_GRACE_SECONDS)]
    if rank.drained or now - rank.ending.time > UNCLAIMED_SECONDS:
        return [ForgetRank(rank.key)]
    return []


def _steer(rank: Rank, assignment: DesiredAssignment) -> list[Action]:
    if rank.phase is Phase.EXITED or assignment.action == "run":
        return []
    if assignment.action == "pause":
        return [PauseRank(rank.key)]
    return [] if rank.stopping else [TerminateRank(rank.key, assignment.grace_seconds)]


def _slot_taken(world: World, ranks: Ranks) -> bool:
    """An older generation's rank may take a moment to leave the slot."""
    return any(rank.ending is None and rank.order.world.slot == world.slot for rank in ranks.values())


def store_namespaces(desired: Desired) -> frozenset[StoreNamespace]:
    """The generations of which this node is the first."""
    return frozenset(
        StoreNamespace(world.job_id, world.generation, world.store_token)
        for assignment in desired.assignments
        for world in assignment.worlds
        if world.node_rank == 0
    )


def observe(desired: Desired, ranks: Ranks, deleted: tuple[str, ...], now: float) -> Observed:
    """Everything there is, and for what is desired and is not there: waiting to start, or never to start. `now` is monotonic."""
    found: dict[tuple[str, int], list[ObservedRank]] = {}
    for assignment in desired.assignments:
        missing = [world for world in assignment.worlds if key_of(world) not in ranks]
        found[assignment.job_id, assignment.generation] = [_absent(world, assignment.action) for world in missing]
    for key, rank in ranks.items():
        found.setdefault((key.job_id, key.generation), []).append(rank.observed(now))
    assignments = tuple(
        ObservedAssignment(job_id=job_id, generation=generation, ranks=tuple(sorted(observed, key=lambda rank: rank.rank)))
        for (job_id, generation), observed in sorted(found.items())
    )
    return Observed(revision=desired.revision, assignments=assignments, deleted_checkpoints=deleted)


def _absent(world: World, action: str) -> ObservedRank:
    never_started = action != "run"
    return ObservedRank(
        rank=world.rank, slot=world.slot, state=RankState.EXITED if never_started else RankState.ASSIGNED, drained=never_started
    )
