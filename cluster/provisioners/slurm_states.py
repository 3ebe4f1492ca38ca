"""States and reasons of Slurm's jobs, in words. Source: the sections JOB STATE CODES and JOB REASON CODES of squeue's manual."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from paceline.cluster.provisioners.provisioner import LaunchPhase

QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "RESIZING"})
#: A job that is being requeued is COMPLETING for a moment.
PRESENT = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"})
ENDS: Mapping[str, str] = {
    "BOOT_FAIL": "its machine did not boot",
    "CANCELLED": "its job was cancelled",
    "COMPLETED": "its agent left in order",
    "DEADLINE": "it could not start before its deadline",
    "FAILED": "its agent ended with an error: see NAME/agent.log in the pool's `directory`",
    "NODE_FAIL": "its machine failed",
    "OUT_OF_MEMORY": "it used more memory than it asked for: raise the pool's `memory`",
    "PREEMPTED": "a job of higher priority took its machine",
    "REVOKED": "another cluster of the federation runs it",
    "TIMEOUT": "its time limit ended before it was drained: raise the pool's `drain_seconds`",
}
REASONS: Mapping[str, str] = {
    "Resources": "waits in Slurm's queue until machines are free",
    "Priority": "jobs of higher priority are ahead of it in Slurm's queue",
    "None": "Slurm has not looked at it yet",
    "BeginTime": "its begin time is not there yet; a requeued job waits two minutes",
    "Dependency": "waits for another job",
    "JobHeldUser": "is held: `scontrol release` lets it go",
    "JobHeldAdmin": "is held by an administrator",
    "Licenses": "waits for a licence",
    "NodeDown": "a machine that it needs is down",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "asks for more machines than its partition allows: it never starts",
    "PartitionTimeLimit": "asks for more time than its partition allows: it never starts; lower the pool's `time`",
    "ReqNodeNotAvail": "a machine that it needs is reserved, down or drained",
    "Reservation": "waits for a reservation",
    "JobLaunchFailure": "could not be started on its machine",
    "BadConstraints": "asks for machines that do not exist: it never starts",
    "launch failed requeued held": "could not be started again and again, and is held: `scontrol release` lets it go",
}


def phase_of(state: str) -> LaunchPhase:
    """The phase of a job in this state. A state that is not known is taken for one that runs: nothing is started in its place."""
    if state in QUEUED:
        return LaunchPhase.PENDING
    return LaunchPhase.ENDED if state in ENDS else LaunchPhase.RUNNING


def state_in_words(state: str, reason: str, start: datetime | None) -> str:
    """Where the job waits, or how it has ended. `start`: when Slurm expects it to start."""
    if state in ENDS:
        return ENDS[state]
    if state in QUEUED and state != "CONFIGURING":
        expected = f"; Slurm expects it to start at {start:%Y-%m-%d %H:%M} UTC" if start is not None else ""
        return _reason(reason) + expected
    words = {"CONFIGURING": "its machine is being prepared", "SUSPENDED": "Slurm has suspended it", "COMPLETING": "its job is ending"}
    return words.get(state, "")


def _reason(reason: str) -> str:
    first = reason.partition(",")[0].strip("() ")
    if first in REASONS:
        return REASONS[first]
    if first.startswith(("QOS", "Assoc", "Max")) or "Limit" in first:
        return f"a limit of its account or quality of service is reached ({first})"
    return f"waits in Slurm's queue ({reason[:120]})" if reason else REASONS["None"]
