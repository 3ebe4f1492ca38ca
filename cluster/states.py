"""States and transition tables, one of each per noun. A terminal state has no way out, but that a job can be set back to one of its
checkpoints; reason and intent are not states."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class JobState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    RESIZING = "resizing"
    STOPPING = "stopping"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Intent(StrEnum):
    """The user's wish for a job (`desired`)."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


class EndReason(StrEnum):
    """Why a job stopped, ended, or is being stopped."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    RANK_CRASHED = "rank_crashed"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_LOST = "node_lost"
    NODE_REMOVED = "node_removed"  # by a person, at once
    HANG = "hang"
    START_TIMEOUT = "start_timeout"
    STOP_TIMEOUT = "stop_timeout"
    CHECKPOINT_FAILED = "checkpoint_failed"
    INVALID_INPUT = "invalid_input"
    LOSS_NOT_FINITE = "loss_not_finite"
    LOSS_SPIKE = "loss_spike"
    ROLLED_BACK = "rolled_back"
    PREEMPTED = "preempted"
    RESIZED = "resized"
    TIME_LIMIT = "time_limit"


class NodeState(StrEnum):
    JOINING = "joining"
    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    GONE = "gone"


class LaunchState(StrEnum):
    """The state of a node that a provider is to start. Whether it is still wanted is an intent, not a state."""

    REQUESTED = "requested"  # its provider has not answered yet
    PENDING = "pending"  # its provider has taken it, and it does not run yet
    RUNNING = "running"  # its agent was started, and has not joined
    JOINED = "joined"
    TERMINATING = "terminating"
    ENDED = "ended"  # in order
    FAILED = "failed"


class RankState(StrEnum):
    """The state of one rank, as its agent observes it."""

    ASSIGNED = "assigned"  # desired, not yet confirmed by the agent
    STARTING = "starting"  # process forked, world not joined
    PARKED = "parked"  # warm, and without a place
    RUNNING = "running"  # world joined
    STOPPING = "stopping"
    EXITED = "exited"
    LOST = "lost"  # its node is lost
    MOVED = "moved"  # its process lives on as a rank of a newer generation


class CheckpointState(StrEnum):
    COMMITTED = "committed"
    SUPERSEDED = "superseded"  # whole, but its job went on from an older one before it was heard of, or was set back to an older one
    DAMAGED = "damaged"
    DELETING = "deleting"
    DELETED = "deleted"


JOB_TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.PAUSED, JobState.CANCELLED, JobState.FAILED}),
    JobState.STARTING: frozenset({JobState.RUNNING, JobState.RECOVERING, JobState.STOPPING}),
    JobState.RUNNING: frozenset({JobState.RECOVERING, JobState.RESIZING, JobState.STOPPING}),
    JobState.RECOVERING: frozenset({JobState.RUNNING, JobState.STOPPING}),
    JobState.RESIZING: frozenset({JobState.RUNNING, JobState.RECOVERING, JobState.STOPPING}),
    JobState.STOPPING: frozenset(
        {JobState.RECOVERING, JobState.PAUSED, JobState.QUEUED, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.PAUSED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    # set back to a checkpoint, by its user alone
    JobState.COMPLETED: frozenset({JobState.QUEUED}),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset({JobState.QUEUED}),
}

NODE_TRANSITIONS: Mapping[NodeState, frozenset[NodeState]] = {
    NodeState.JOINING: frozenset({NodeState.READY, NodeState.GONE}),
    NodeState.READY: frozenset({NodeState.CORDONED, NodeState.DRAINING, NodeState.UNREACHABLE, NodeState.GONE}),
    NodeState.CORDONED: frozenset({NodeState.READY, NodeState.DRAINING, NodeState.UNREACHABLE, NodeState.GONE}),
    NodeState.DRAINING: frozenset({NodeState.GONE, NodeState.UNREACHABLE, NodeState.READY, NodeState.CORDONED}),
    NodeState.UNREACHABLE: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING, NodeState.LOST, NodeState.GONE}),
    NodeState.LOST: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING, NodeState.GONE}),
    NodeState.GONE: frozenset(),
}

LAUNCH_TRANSITIONS: Mapping[LaunchState, frozenset[LaunchState]] = {
    LaunchState.REQUESTED: frozenset(
        {LaunchState.PENDING, LaunchState.RUNNING, LaunchState.JOINED, LaunchState.TERMINATING, LaunchState.ENDED, LaunchState.FAILED}
    ),
    LaunchState.PENDING: frozenset({LaunchState.RUNNING, LaunchState.JOINED, LaunchState.TERMINATING, LaunchState.FAILED}),
    # an engine may take back what it has started, and put it into its queue again
    LaunchState.RUNNING: frozenset({LaunchState.PENDING, LaunchState.JOINED, LaunchState.TERMINATING, LaunchState.FAILED}),
    LaunchState.JOINED: frozenset({LaunchState.PENDING, LaunchState.RUNNING, LaunchState.TERMINATING, LaunchState.ENDED}),
    LaunchState.TERMINATING: frozenset({LaunchState.ENDED, LaunchState.FAILED}),
    LaunchState.ENDED: frozenset(),
    LaunchState.FAILED: frozenset(),
}
OVER_LAUNCH_STATES = frozenset({LaunchState.ENDED, LaunchState.FAILED})

#: A rank only moves forward. A generation may end at any moment: until its process has ended, or is given up, a rank can go on to the next one.
RANK_TRANSITIONS: Mapping[RankState, frozenset[RankState]] = {
    RankState.ASSIGNED: frozenset(
        {
            RankState.STARTING,
            RankState.PARKED,
            RankState.RUNNING,
            RankState.STOPPING,
            RankState.EXITED,
            RankState.LOST,
            RankState.MOVED,
        }
    ),
    RankState.STARTING: frozenset(
        {RankState.PARKED, RankState.RUNNING, RankState.STOPPING, RankState.EXITED, RankState.LOST, RankState.MOVED}
    ),
    RankState.PARKED: frozenset({RankState.RUNNING, RankState.STOPPING, RankState.EXITED, RankState.LOST, RankState.MOVED}),
    RankState.RUNNING: frozenset({RankState.STOPPING, RankState.EXITED, RankState.LOST, RankState.MOVED}),
    RankState.STOPPING: frozenset({RankState.EXITED, RankState.LOST, RankState.MOVED}),
    RankState.LOST: frozenset({RankState.EXITED}),  # its node came back, and its slot is free
    RankState.EXITED: frozenset(),
    RankState.MOVED: frozenset(),
}
#: What an agent's report can make of a rank. That a rank is lost, or lives on in a newer generation, is decided by the coordinator alone.
REPORTED_RANK_STATES = frozenset(RankState) - {RankState.LOST, RankState.MOVED}

CHECKPOINT_TRANSITIONS: Mapping[CheckpointState, frozenset[CheckpointState]] = {
    # a job that is set back to an older checkpoint supersedes its newer ones; a superseded one counts again where the job is set back to it
    CheckpointState.COMMITTED: frozenset({CheckpointState.SUPERSEDED, CheckpointState.DAMAGED, CheckpointState.DELETING}),
    CheckpointState.SUPERSEDED: frozenset({CheckpointState.COMMITTED, CheckpointState.DAMAGED, CheckpointState.DELETING}),
    CheckpointState.DAMAGED: frozenset({CheckpointState.DELETING}),
    CheckpointState.DELETING: frozenset({CheckpointState.DELETED}),
    CheckpointState.DELETED: frozenset(),
}

TERMINAL_JOB_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
ACTIVE_JOB_STATES = frozenset({JobState.STARTING, JobState.RUNNING, JobState.RECOVERING, JobState.RESIZING, JobState.STOPPING})


class IllegalTransitionError(Exception):
    """A move that the table does not allow."""


S = TypeVar("S", bound=StrEnum)


def check_transition(table: Mapping[S, frozenset[S]], old: S, new: S) -> None:
    if new not in table[old]:
        allowed = ", ".join(sorted(table[old])) or "nothing, it is terminal"
        raise IllegalTransitionError(f"{type(old).__name__} {old} -> {new} is not allowed; from {old}: {allowed}")
