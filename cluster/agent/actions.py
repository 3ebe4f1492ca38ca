"""What an agent does on its node to come closer to what the coordinator desires: the actions that `ranks.reconcile` decides on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.agent.checkpoints import CheckpointDeletions
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.node_ranks import NodeRanks
from paceline.cluster.agent.ranks import launch
from paceline.cluster.agent.ranks.reconcile import (
    CallRank,
    DeleteCheckpoint,
    DropStacks,
    ForgetRank,
    MarkRankExited,
    MoveRank,
    NodeAction,
    PauseRank,
    ProfileRank,
    ReadStacks,
    RecordGradients,
    ReleaseRank,
    StartRank,
    TerminateRank,
)
from paceline.cluster.protocol import Desired, RankKey
from paceline.training.link import RankOrder, RankPlace
from paceline.training.spec.stored import StoredSpec


@dataclass(frozen=True)
class ActionRunner:
    """Carries out actions on the ranks of this node, and on the checkpoints that were given up."""

    ranks: NodeRanks
    deletions: CheckpointDeletions
    folder: AgentFolder
    checkpoints: Path  # where jobs save that name no folder
    interface: str | None  # of this node, towards the others

    def carry_out(self, action: NodeAction, desired: Desired) -> None:
        match action:
            case StartRank(world=world, spec=spec):
                self.ranks.start(self._order(world, spec), launch.local_slots(world, desired))
            case MoveRank(key=key, world=world, spec=spec):
                self.ranks.move(key, self._order(world, spec))
            case MarkRankExited(key=old, world=world, spec=spec):
                self.ranks.mark_exited(old, self._order(world, spec))
            case CallRank(key=key):
                self.ranks.requests.take_place(key)
            case PauseRank(key=key):
                self.ranks.requests.pause(key)
            case ProfileRank(key=key, request=request) | RecordGradients(key=key, request=request):
                self.ranks.requests.record(key, request)
            case ReadStacks(key=key, request=stacks):
                self.ranks.requests.read_stacks(key, stacks)
            case DropStacks(key=key):
                self.ranks.requests.drop_stacks(key)
            case ReleaseRank(key=key):
                self.ranks.requests.release(key)
            case TerminateRank(key=key, grace_seconds=grace):
                self.ranks.terminate(key, grace)
            case ForgetRank(key=key):
                self.ranks.forget(key)
            case DeleteCheckpoint(checkpoint=checkpoint):
                self.deletions.start(checkpoint)

    def _order(self, world: RankPlace, spec: StoredSpec) -> RankOrder:
        return launch.order_for(world, spec, self.folder, self.checkpoints, self.interface)


def described(action: NodeAction) -> str:
    """Name an action and its rank for the log, without the job's whole spec."""
    match action:
        case StartRank(world=world) | MarkRankExited(world=world):
            subject: object = RankKey.of(world)
        case DeleteCheckpoint(checkpoint=checkpoint):
            subject = checkpoint.id
        case _:
            subject = action.key
    return f"{type(action).__name__} {subject}"
