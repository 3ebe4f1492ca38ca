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


def root_cause(reports: Sequence[FailureReport]) -> tuple[FailureReport | None, tuple[FailureReport, ...]]:
    """The culprit and its victims, the victims by rank.

    Whoever only lost a peer, or ended because its agent told it to, is a victim: no clocks are compared for that, which may
    differ between machines. Of the others the one that died first is to blame; a report without a time (0.0: the rank had no
    last word) counts as later than one with a time. Where all are victims the first of them stands for the unknown cause.
    """
    if not reports:
        return None, ()
    culprit = min(reports, key=_suspicion)
    victims = sorted((report for report in reports if report is not culprit), key=lambda report: report.rank)
    return culprit, tuple(victims)


def is_victim(report: FailureReport) -> bool:
    """An exception of its own after the order is still its own."""
    return report.kind == "peer_lost" or (report.ordered and report.kind in ("signal", "exit"))


def end_reason_of(culprit: FailureReport) -> EndReason:
    return _REASONS.get(culprit.kind, EndReason.RANK_CRASHED)


def _suspicion(report: FailureReport) -> tuple[bool, bool, float, int]:
    return (is_victim(report), report.time <= 0.0, report.time, report.rank)
