"""Who is to blame: the rank that broke, and the ranks that it dragged down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster.states import EndReason
from training.link import FailureReport

_REASONS: Mapping[str, EndReason] = {
    "out_of_memory": EndReason.OUT_OF_MEMORY,
    "invalid_input": EndReason.INVALID_INPUT,
    "checkpoint_failed": EndReason.CHECKPOINT_FAILED,
}


def root_cause(reports: Sequence[FailureReport], stopped_at: float | None = None) -> tuple[FailureReport | None, tuple[FailureReport, ...]]:
    """The culprit and its victims, the victims by rank.

    Whoever only lost a peer, or was killed after the gang had been ordered to stop (`stopped_at`, seconds since the epoch), is
    a victim. Of the others the one that died first is to blame; a report without a time (0.0: the rank had no last word)
    counts as later than one with a time. Where all are victims the first of them stands for the unknown cause.
    """
    if not reports:
        return None, ()
    culprit = min(reports, key=lambda report: _suspicion(report, stopped_at))
    victims = sorted((report for report in reports if report is not culprit), key=lambda report: report.rank)
    return culprit, tuple(victims)


def is_victim(report: FailureReport, stopped_at: float | None = None) -> bool:
    killed_by_order = report.kind == "signal" and stopped_at is not None and report.time >= stopped_at
    return report.kind == "peer_lost" or killed_by_order


def end_reason_of(culprit: FailureReport) -> EndReason:
    return _REASONS.get(culprit.kind, EndReason.RANK_CRASHED)


def _suspicion(report: FailureReport, stopped_at: float | None) -> tuple[bool, bool, float, int]:
    return (is_victim(report, stopped_at), report.time <= 0.0, report.time, report.rank)
