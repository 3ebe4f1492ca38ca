"""Desired against actual: the next actions of an agent, and its report. Pure; calling it twice is harmless."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.cluster.protocol import CheckpointToDelete, Desired, DesiredAssignment, Observed, ObservedAssignment, ObservedRank, RankKey
from paceline.cluster.states import RankState
from paceline.training.link import GradientsRequest, RankPlace, TraceRequest
from paceline.training.schema.script import grace_of
from paceline.training.spec.stored import StoredSpec

#: What an exited rank left behind is given up this long after, if the coordinator will not have it.
UNCLAIMED_SECONDS = 24 * 3600.0

Ranks = Mapping[RankKey, RankRecord]


@dataclass(frozen=True)
class StartRank:
    world: RankPlace
    spec: StoredSpec


@dataclass(frozen=True)
class MoveRank:
    """The living process that goes by `key` takes its place in a newer generation."""

    key: RankKey
    world: RankPlace
    spec: StoredSpec


@dataclass(frozen=True)
class MarkRankExited:
    """The process that was to take this place has ended; `key` is its former place, if that is still known."""

    key: RankKey | None
    world: RankPlace
    spec: StoredSpec


@dataclass(frozen=True)
class CallRank:
    """Tell a moved process its place again, until it reports that it is there."""

    key: RankKey


@dataclass(frozen=True)
class PauseRank:
    key: RankKey


@dataclass(frozen=True)
class ProfileRank:
    key: RankKey
    request: TraceRequest


@dataclass(frozen=True)
class RecordGradients:
    key: RankKey
    request: GradientsRequest


@dataclass(frozen=True)
class ReadStacks:
    key: RankKey
    request: str


@dataclass(frozen=True)
class DropStacks:
    """Drop the stacks of a rank, which the coordinator has stored."""

    key: RankKey


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


NodeAction = (
    StartRank
    | MoveRank
    | MarkRankExited
    | CallRank
    | PauseRank
    | ProfileRank
    | RecordGradients
    | ReadStacks
    | DropStacks
    | ReleaseRank
    | TerminateRank
    | ForgetRank
    | DeleteCheckpoint
)


@dataclass(frozen=True)
class StoreNamespace:
    """A generation whose rendezvous store this node serves."""

    job_id: str
    generation: int
    token: str
    at_boundary: bool


def reconcile(desired: Desired, ranks: Ranks, now: float) -> list[NodeAction]:
    """The actions that bring the ranks closer to what is desired. `now` is the wall clock."""
    wanted = {RankKey.of(world): (assignment, world) for assignment in desired.assignments for world in assignment.worlds}
    places = [(assignment, world) for key, (assignment, world) in wanted.items() if key not in ranks and assignment.action == "run"]
    called = {RankKey.of_process(world) for _, world in places}
    actions = [action for assignment, world in places for action in _fill(world, assignment.spec, ranks)]
    for key, rank in ranks.items():
        if key in wanted:
            actions += _act_on_assignment(rank, wanted[key][0])
        elif rank.phase is RankPhase.EXITED or rank.process not in called:
            actions += _stop_undesired(rank, now)
    actions += [DeleteCheckpoint(checkpoint) for checkpoint in desired.delete_checkpoints]
    return actions


def _fill(world: RankPlace, spec: StoredSpec, ranks: Ranks) -> list[NodeAction]:
    """Fill an empty place: by its living process, or by a new process once the slot is free."""
    if world.birth is None:
        return [] if _slot_taken(world, ranks) else [StartRank(world, spec)]
    lives = sorted((rank for rank in ranks.values() if rank.process == RankKey.of_process(world)), key=lambda rank: rank.key.generation)
    newest = lives[-1] if lives else None
    if newest is None or newest.phase is RankPhase.EXITED:
        return [MarkRankExited(newest.key if newest else None, world, spec)]
    return [MoveRank(newest.key, world, spec)] if newest.phase is RankPhase.ALIVE else []


def _stop_undesired(rank: RankRecord, now: float) -> list[NodeAction]:
    if rank.phase is RankPhase.MOVED:
        return [ForgetRank(rank.key)] if rank.drained else []
    if rank.ending is None:
        return [] if rank.stopping else [TerminateRank(rank.key, grace_of(rank.order.spec.document))]
    if rank.drained or now - rank.ending.time > UNCLAIMED_SECONDS:
        return [ForgetRank(rank.key)]
    return []


def _act_on_assignment(rank: RankRecord, assignment: DesiredAssignment) -> list[NodeAction]:
    if rank.phase in (RankPhase.EXITED, RankPhase.MOVED):
        return []
    if assignment.action == "run":
        asked = [*_request_profile(rank, assignment), *_request_gradients(rank, assignment)] if rank.entered else [CallRank(rank.key)]
        return [*asked, *_request_stacks(rank, assignment)]
    if assignment.action == "pause":
        return [PauseRank(rank.key)]
    if assignment.action == "release":
        return [ReleaseRank(rank.key)]
    return [] if rank.stopping else [TerminateRank(rank.key, assignment.grace_seconds)]


def _request_profile(rank: RankRecord, assignment: DesiredAssignment) -> list[NodeAction]:
    """Ask a rank for a profiler trace, again on each tick until the coordinator has the answer: a rank obeys each request once."""
    profile = assignment.profile
    if profile is None or rank.key.rank not in profile.ranks or not rank.joined:
        return []
    return [ProfileRank(rank.key, TraceRequest(id=profile.id, steps=profile.steps))]


def _request_gradients(rank: RankRecord, assignment: DesiredAssignment) -> list[NodeAction]:
    """Ask a rank for a record of its gradients, in the same way."""
    wanted = assignment.gradients
    if wanted is None or rank.key.rank not in wanted.ranks or not rank.joined:
        return []
    return [RecordGradients(rank.key, GradientsRequest(id=wanted.id, names=wanted.names, snapshots=wanted.snapshots))]


def _request_stacks(rank: RankRecord, assignment: DesiredAssignment) -> list[NodeAction]:
    """Read the stacks of a rank once for each request, and report them until the coordinator asks no more."""
    request = assignment.stacks
    if request is None or rank.key.rank not in request.ranks:
        return [DropStacks(rank.key)] if rank.stacks is not None else []
    answered = rank.stacks is not None and rank.stacks.id == request.id
    return [] if answered or rank.pid is None else [ReadStacks(rank.key, request.id)]


def _slot_taken(world: RankPlace, ranks: Ranks) -> bool:
    """Whether a rank of an older generation still has to leave the slot."""
    return any(rank.ending is None and rank.phase is not RankPhase.MOVED and rank.order.world.slot == world.slot for rank in ranks.values())


def store_namespaces(desired: Desired, ranks: Ranks) -> list[StoreNamespace]:
    """The generations of which this node is the first, oldest first: those desired, and those that are yet to be left in good order."""
    places = [world for assignment in desired.assignments for world in assignment.worlds]
    places += [left for world in places if (left := _yet_to_leave(world, ranks)) is not None]
    found = {StoreNamespace(each.job_id, each.generation, each.store_token, each.at_boundary) for each in places if each.node_rank == 0}
    return sorted(found, key=lambda namespace: (namespace.job_id, namespace.generation))


def _yet_to_leave(world: RankPlace, ranks: Ranks) -> RankPlace | None:
    """The place where the process still is that is to take this one at a step boundary."""
    here = ranks.get(RankKey.of(world))
    if not world.at_boundary or world.birth is None or (here is not None and (here.entered or here.ending is not None)):
        return None
    earlier = [rank for rank in ranks.values() if rank.process == RankKey.of_process(world) and rank.key.generation < world.generation]
    return max(earlier, key=lambda rank: rank.key.generation).order.world if earlier else None


def observe(desired: Desired, ranks: Ranks, deleted: tuple[str, ...], now: float) -> Observed:
    """The report of all ranks, and of desired ones that do not exist: waiting to start, or never to start. `now` is monotonic."""
    found: dict[tuple[str, int], list[ObservedRank]] = {}
    for assignment in desired.assignments:
        missing = [world for world in assignment.worlds if RankKey.of(world) not in ranks]
        found.setdefault((assignment.job_id, assignment.generation), []).extend(_absent(world, assignment.action) for world in missing)
    for key, rank in ranks.items():
        found.setdefault((key.job_id, key.generation), []).append(rank.observed(now))
    assignments = tuple(
        ObservedAssignment(job_id=job_id, generation=generation, ranks=tuple(sorted(observed, key=lambda rank: rank.rank)))
        for (job_id, generation), observed in sorted(found.items())
    )
    return Observed(revision=desired.revision, assignments=assignments, deleted_checkpoints=deleted)


def _absent(world: RankPlace, action: str) -> ObservedRank:
    never_started = action != "run"
    return ObservedRank(
        rank=world.rank, slot=world.slot, state=RankState.EXITED if never_started else RankState.ASSIGNED, drained=never_started
    )
