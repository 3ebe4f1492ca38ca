"""Finds the culprit of a failure: the rank that broke, and the ranks that it dragged down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from paceline.cluster.states import EndReason
from paceline.training.errors import CheckpointUnreachableError
from paceline.training.link import FailureReport

#: The failure of a rank that ended with exit code 0 while others still communicated with it.
LEFT_EARLY = "ended with code 0 while other ranks still communicated with it; all ranks must take the same number of steps"
#: The failure of a rank that was ended because of the others, and is the only one that cannot have been dragged down.
LEFT_GROUP = (
    "still ran, and had raised nothing, after all others had lost their connection: it had left the process group before them, or no longer "
    "communicated; all ranks must take the same number of steps"
)
TOO_EARLY = frozenset({LEFT_EARLY, LEFT_GROUP})
#: Why a rank beside the culprit ended: dragged down by it, by the same failure, or by one of its own.
Share = Literal["victim", "same", "also"]
#: Kinds of failure that no other rank's end brings about.
_BY_ITSELF = frozenset({"exception", "out_of_memory", "invalid_input", "checkpoint_failed", "loss_not_finite", "loss_spike", "rolled_back"})
#: The exception of a rank that found none of its checkpoints where it could read them.
UNREACHABLE = f"{CheckpointUnreachableError.__module__}.{CheckpointUnreachableError.__qualname__}"
_OF_A_DEVICE = re.compile(r"CUDA|NCCL|cuDNN|device-side|uncorrectable|hardware", re.IGNORECASE)
_REASONS: Mapping[str, EndReason] = {
    "out_of_memory": EndReason.OUT_OF_MEMORY,
    "invalid_input": EndReason.INVALID_INPUT,
    "checkpoint_failed": EndReason.CHECKPOINT_FAILED,
    "loss_not_finite": EndReason.LOSS_NOT_FINITE,
    "loss_spike": EndReason.LOSS_SPIKE,
    "rolled_back": EndReason.ROLLED_BACK,
    "node_removed": EndReason.NODE_REMOVED,
}


def root_cause(reports: Sequence[FailureReport]) -> tuple[FailureReport | None, tuple[FailureReport, ...]]:
    """The culprit and its victims, the victims by rank.

    A rank that only lost a peer, or ended because its agent ordered it, is a victim: no clocks are compared for that, which may
    differ between machines. Of the others the one that died first is the culprit; a report without a time (0.0: the rank left no
    report) counts as later than one with a time. Where all are victims the first of them stands for the unknown cause."""
    if not reports:
        return None, ()
    culprit = min(reports, key=_suspicion)
    victims = sorted((report for report in reports if report is not culprit), key=lambda report: report.rank)
    return culprit, tuple(victims)


def is_victim(report: FailureReport) -> bool:
    """Whether a rank failed because of another. An exception of its own after the order to end is still its own."""
    return report.kind == "peer_lost" or (report.ordered and report.kind in ("signal", "exit"))


def share_of(report: FailureReport, culprit: FailureReport) -> Share:
    """The relation of another rank's end to the culprit's. One that exits with the same code and the same last words, as where all refuse an argument,
    has failed by itself; any other exit may be the culprit's doing."""
    is_same = (report.exception, report.message) == (culprit.exception, culprit.message)
    says_same = report.kind == "exit" and is_same and report.message != f"exited with code {report.exit_code}"
    if is_victim(report) or not (report.kind in _BY_ITSELF or says_same):
        return "victim"
    return "same" if is_same else "also"


def left_early(reports: Sequence[FailureReport], completed: Sequence[int]) -> int | None:
    """The rank that completed while other ranks still needed it: the first of `completed`, where the failures only say that they lost a
    peer. None where another rank is the culprit."""
    only_victims = all(report.kind == "peer_lost" for report in reports)
    return min(completed) if completed and reports and only_victims else None


def left_group(reports: Sequence[FailureReport], paused: Sequence[int]) -> int | None:
    """The rank of a script that left the process group while others still needed it, and went on, as to save: the only one that ended because
    it was told to, beside ranks that had all lost a peer. `paused`: ranks that exited with 0 when they were told to end. None where more than one
    rank had not failed, as with NCCL, whose ranks do not see at once that a peer is gone; and where another rank is the culprit."""
    told = [report.rank for report in reports if report.kind != "peer_lost" and is_victim(report)] + list(paused)
    all_victims = all(is_victim(report) for report in reports)
    return told[0] if len(told) == 1 and all_victims and len(reports) + len(paused) > 1 else None


def would_repeat(culprit: FailureReport) -> bool:
    """Whether the failure would come again after a restart. An exception of the code itself comes again wherever its micro-batch is
    computed, since nothing in a step depends on the rank; one that a device or a driver raised does not."""
    return culprit.kind == "exception" and not _OF_A_DEVICE.search(culprit.message)


def could_not_start(report: FailureReport, *, had_process: bool) -> bool:
    """Whether the node of a rank could not start a process for it. One that was told to end before is not meant."""
    unknown_exit = report.kind == "exit" and report.exit_code is None and report.signal is None
    return unknown_exit and not had_process and not report.ordered


def could_not_read(report: FailureReport) -> bool:
    """Whether a rank found none of its checkpoints where it could read them. Another node may."""
    return report.exception == UNREACHABLE


def end_reason_of(culprit: FailureReport) -> EndReason:
    return _REASONS.get(culprit.kind, EndReason.RANK_CRASHED)


def _suspicion(report: FailureReport) -> tuple[bool, bool, float, int]:
    return (is_victim(report), report.time <= 0.0, report.time, report.rank)
