"""Desired against actual: what an agent should do next, and what it reports. Pure; calling it twice is harmless."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.agent.ranks import Phase, Rank
from cluster.agent.spawner_link import RankKey, birth_of, key_of
from cluster.protocol import CheckpointToDelete, Desired, DesiredAssignment, Observed, ObservedAssignment, ObservedRank
from cluster.states import RankState
from training.link import ProfileRequest, World
from training.spec.script import grace_of

#: What an exited rank left behind is given up this long after, if the coordinator will not have it.
UNCLAIMED_SECONDS = 24 * 3600.0

Ranks = Mapping[RankKey, Rank]


@dataclass(frozen=True)
class StartRank:
    world: World
    spec: dict[str, Any]


@dataclass(frozen=True)
class MoveRank:
    """The living process that goes by `key` takes its place in a newer generation."""

    key: RankKey
    world: World
    spec: dict[str, Any]


@dataclass(frozen=True)
class BuryRank:
    """The process that was to take this place has ended; `key`: as what, if that is still known."""

    key: RankKey | None
    world: World
    spec: dict[str, Any]


@dataclass(frozen=True)
class CallRank:
    """Tell a moved process its place again, until it says that it is there."""

    key: RankKey


@dataclass(frozen=True)
class PauseRank:
    key: RankKey


@dataclass(frozen=True)
class ProfileRank:
    key: RankKey
    request: ProfileRequest


@dataclass(frozen=True)
class ReleaseRank:
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


Action = StartRank | MoveRank | BuryRank | CallRank | PauseRank | ProfileRank | ReleaseRank | TerminateRank | ForgetRank | DeleteCheckpoint


@dataclass(frozen=True)
class StoreNamespace:
    """A generation whose rendezvous store this node serves."""

    job_id: str
    generation: int
    token: str
    at_boundary: bool


def reconcile(desired: Desired, ranks: Ranks, now: float) -> list[Action]:
    """What brings the ranks closer to what is desired. `now` is the wall clock."""
    wanted = {key_of(world): (assignment, world) for assignment in desired.assignments for world in assignment.worlds}
    places = [(assignment, world) for key, (assignment, world) in wanted.items() if key not in ranks and assignment.action == "run"]
    called = {birth_of(world) for _, world in places}
    actions = [action for assignment, world in places for action in _fill(world, assignment.spec, ranks)]
    for key, rank in ranks.items():
        if key in wanted:
            actions += _steer(rank, wanted[key][0])
        elif rank.phase is Phase.EXITED or rank.birth not in called:
            actions += _dismiss(rank, now)
    actions += [DeleteCheckpoint(checkpoint) for checkpoint in desired.delete_checkpoints]
    return actions


def _fill(world: World, spec: dict[str, Any], ranks: Ranks) -> list[Action]:
    """Take an empty place: by the process that was born for it, or by a new one once the slot is free."""
    if world.birth is None:
        return [] if _slot_taken(world, ranks) else [StartRank(world, spec)]
    lives = sorted((rank for rank in ranks.values() if rank.birth == birth_of(world)), key=lambda rank: rank.key.generation)
    newest = lives[-1] if lives else None
    if newest is None or newest.phase is Phase.EXITED:
        return [BuryRank(newest.key if newest else None, world, spec)]
    return [MoveRank(newest.key, world, spec)] if newest.phase is Phase.ALIVE else []


def _dismiss(rank: Rank, now: float) -> list[Action]:
    if rank.phase is Phase.MOVED:
        return [ForgetRank(rank.key)] if rank.drained else []
    if rank.ending is None:
        return [] if rank.stopping else [TerminateRank(rank.key, grace_of(rank.order.spec))]
    if rank.drained or now - rank.ending.time > UNCLAIMED_SECONDS:
        return [ForgetRank(rank.key)]
    return []


def _steer(rank: Rank, assignment: DesiredAssignment) -> list[Action]:
    if rank.phase in (Phase.EXITED, Phase.MOVED):
        return []
    if assignment.action == "run":
        return _trace(rank, assignment) if rank.entered else [CallRank(rank.key)]
    if assignment.action == "pause":
        return [PauseRank(rank.key)]
    if assignment.action == "release":
        return [ReleaseRank(rank.key)]
    return [] if rank.stopping else [TerminateRank(rank.key, assignment.grace_seconds)]


def _trace(rank: Rank, assignment: DesiredAssignment) -> list[Action]:
    """Asked again on each tick until the coordinator has its answer: a rank obeys each request once."""
    profile = assignment.profile
    if profile is None or rank.key.rank not in profile.ranks or not rank.joined:
        return []
    return [ProfileRank(rank.key, ProfileRequest(id=profile.id, steps=profile.steps))]


def _slot_taken(world: World, ranks: Ranks) -> bool:
    """An older generation's rank may take a moment to leave the slot."""
    return any(rank.ending is None and rank.phase is not Phase.MOVED and rank.order.world.slot == world.slot for rank in ranks.values())


def store_namespaces(desired: Desired, ranks: Ranks) -> list[StoreNamespace]:
    """The generations of which this node is the first, oldest first: those desired, and those that are yet to be left in good order."""
    places = [world for assignment in desired.assignments for world in assignment.worlds]
    places += [left for world in places if (left := _yet_to_leave(world, ranks)) is not None]
    found = {StoreNamespace(each.job_id, each.generation, each.store_token, each.at_boundary) for each in places if each.node_rank == 0}
    return sorted(found, key=lambda namespace: (namespace.job_id, namespace.generation))


def _yet_to_leave(world: World, ranks: Ranks) -> World | None:
    """Where the process still is that is to take this place at a step boundary."""
    here = ranks.get(key_of(world))
    if not world.at_boundary or world.birth is None or (here is not None and (here.entered or here.ending is not None)):
        return None
    earlier = [rank for rank in ranks.values() if rank.birth == birth_of(world) and rank.key.generation < world.generation]
    return max(earlier, key=lambda rank: rank.key.generation).order.world if earlier else None


def observe(desired: Desired, ranks: Ranks, deleted: tuple[str, ...], now: float) -> Observed:
    """Everything there is, and for what is desired and is not there: waiting to start, or never to start. `now` is monotonic."""
    found: dict[tuple[str, int], list[ObservedRank]] = {}
    for assignment in desired.assignments:
        missing = [world for world in assignment.worlds if key_of(world) not in ranks]
        found.setdefault((assignment.job_id, assignment.generation), []).extend(_absent(world, assignment.action) for world in missing)
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
