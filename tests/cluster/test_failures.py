"""Who is blamed for the end of a gang."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.failures import end_reason_of, root_cause
from cluster.states import EndReason
from training.link import FailureReport


def report(rank: int, kind: Any, time: float, *, ordered: bool = False) -> FailureReport:
    return FailureReport(kind=kind, rank=rank, message="", time=time, ordered=ordered)


@pytest.mark.parametrize(
    ("reports", "culprit"),
    [
        ([report(0, "peer_lost", 1.0), report(1, "exception", 2.0)], 1),
        ([report(0, "exception", 3.0), report(1, "exception", 2.0)], 1),
        ([report(0, "exit", 0.0), report(1, "out_of_memory", 2.0)], 1),
        ([report(0, "peer_lost", 5.0), report(1, "peer_lost", 4.0)], 1),
        ([report(2, "signal", 11.0, ordered=True), report(1, "exception", 12.0)], 1),
        ([report(2, "exit", 11.0, ordered=True), report(1, "signal", 12.0)], 1),  # it heard our SIGTERM and left
        ([report(2, "exception", 11.0, ordered=True), report(1, "signal", 12.0)], 2),
        ([report(0, "peer_lost", 9.0), report(1, "signal", 99.0)], 1),  # a crash that was heard of late, or of a fast clock
        ([report(2, "signal", 9.0), report(1, "exception", 12.0)], 2),
        ([report(3, "exception", 1.0), report(1, "exception", 1.0)], 1),
    ],
)
def test_the_culprit_and_the_ranks_it_dragged_down(reports: list[FailureReport], culprit: int) -> None:
    blamed, victims = root_cause(reports)
    assert blamed is not None
    assert blamed.rank == culprit
    assert [victim.rank for victim in victims] == sorted(each.rank for each in reports if each.rank != culprit)


def test_no_report_blames_nobody() -> None:
    assert root_cause([]) == (None, ())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("exception", EndReason.RANK_CRASHED),
        ("signal", EndReason.RANK_CRASHED),
        ("exit", EndReason.RANK_CRASHED),
        ("peer_lost", EndReason.RANK_CRASHED),
        ("out_of_memory", EndReason.OUT_OF_MEMORY),
        ("invalid_input", EndReason.INVALID_INPUT),
        ("checkpoint_failed", EndReason.CHECKPOINT_FAILED),
    ],
)
def test_the_end_reason_of_each_kind(kind: str, reason: EndReason) -> None:
    assert end_reason_of(report(0, kind, 1.0)) is reason
