"""States and transition tables, one of each per noun. Terminal means no way out; reason and intent are not states."""

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
    """What the user wants of a job (`desired`)."""

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
    HANG = "hang"
    START_TIMEOUT = "start_timeout"
    STOP_TIMEOUT = "stop_timeout"
    CHECKPOINT_FAILED = "checkpoint_failed"
    INVALID_INPUT = "invalid_input"
    PREEMPTED = "preempted"
    RESIZED = "resized"


class NodeState(StrEnum):
    JOINING = "joining"
    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    GONE = "gone"


class RankState(StrEnum):
    """What an agent observes of one rank."""

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
    SUPERSEDED = "superseded"  # whole, but its job went on from an older one before it was heard of
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
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

NODE_TRANSITIONS: Mapping[NodeState, frozenset[NodeState]] = {
    NodeState.JOINING: frozenset({NodeState.READY, NodeState.GONE}),
    NodeState.READY: frozenset({NodeState.CORDONED, NodeState.DRAINING, NodeState.UNREACHABLE, NodeState.GONE}),
    NodeState.CORDONED: frozenset({NodeState.READY, NodeState.DRAINING, NodeState.UNREACHABLE, NodeState.GONE}),
    NodeState.DRAINING: frozenset({NodeState.GONE, NodeState.UNREACHABLE, NodeState.READY}),
    NodeState.UNREACHABLE: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING, NodeState.LOST, NodeState.GONE}),
    NodeState.LOST: frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING, NodeState.GONE}),
    NodeState.GONE: frozenset(),
}

CHECKPOINT_TRANSITIONS: Mapping[CheckpointState, frozenset[CheckpointState]] = {
    CheckpointState.COMMITTED: frozenset({CheckpointState.DAMAGED, CheckpointState.DELETING}),
    CheckpointState.SUPERSEDED: frozenset({CheckpointState.DAMAGED, CheckpointState.DELETING}),
    CheckpointState.DAMAGED: frozenset({CheckpointState.DELETING}),
    CheckpointState.DELETING: frozenset({CheckpointState.DELETED}),
    CheckpointState.DELETED: frozenset(),
}

TERMINAL_JOB_STATES = frozenset(state for state, ways_out in JOB_TRANSITIONS.items() if not ways_out)
ACTIVE_JOB_STATES = frozenset({JobState.STARTING, JobState.RUNNING, JobState.RECOVERING, JobState.RESIZING, JobState.STOPPING})


class IllegalTransitionError(Exception):
    """A move that the table does not allow."""


S = TypeVar("S", bound=StrEnum)


def check_transition(table: Mapping[S, frozenset[S]], old: S, new: S) -> None:
    if new not in table[old]:
        allowed = ", ".join(sorted(table[old])) or "nothing, it is terminal"
        raise IllegalTransitionError(f"{type(old).__name__} {old} -> {new} is not allowed; from {old}: {allowed}")
