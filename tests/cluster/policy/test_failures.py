"""Who is blamed for the end of a gang."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.cluster.policy.failures import (
    UNREACHABLE,
    could_not_read,
    could_not_start,
    end_reason_of,
    left_early,
    left_group,
    root_cause,
    share_of,
    would_repeat,
)
from paceline.cluster.states import EndReason
from paceline.training.errors import CheckpointUnreachableError
from paceline.training.link import FailureReport
from paceline.training.reporting.failures import describe


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


def test_without_a_report_there_is_no_culprit() -> None:
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


@pytest.mark.parametrize(
    ("kind", "message", "repeats"),
    [
        ("exception", "division by zero", True),
        ("exception", "CUDA error: uncorrectable ECC error encountered", False),
        ("signal", "killed by SIGKILL", False),
        ("out_of_memory", "out of memory", False),
    ],
)
def test_only_an_exception_of_the_code_itself_comes_again(kind: Any, message: str, repeats: bool) -> None:
    assert would_repeat(FailureReport(kind=kind, rank=0, message=message)) is repeats


@pytest.mark.parametrize(
    ("other", "share"),
    [
        (FailureReport(kind="exception", rank=1, exception="KeyError", message="'lr'"), "same"),
        (FailureReport(kind="exception", rank=1, exception="KeyError", message="'wd'"), "also"),
        (FailureReport(kind="out_of_memory", rank=1, message="out of memory"), "also"),
        (FailureReport(kind="peer_lost", rank=1, message="'lr'"), "victim"),
        (FailureReport(kind="signal", rank=1, message="killed by SIGABRT"), "victim"),  # gloo may end a process so when its peer is gone
        (FailureReport(kind="exit", rank=1, message="exited with code 1"), "victim"),
    ],
)
def test_the_share_of_another_rank_in_a_failure(other: FailureReport, share: str) -> None:
    culprit = FailureReport(kind="exception", rank=0, exception="KeyError", message="'lr'")
    assert share_of(other, culprit) == share


def test_ranks_that_exit_alike_have_failed_alike() -> None:
    """Of two that refused the same argument one was told to have been dragged down by the other."""
    usage = FailureReport(kind="exit", rank=0, message="exited with code 2; its last line: train.py: error: no --lr", exit_code=2)
    assert share_of(replace(usage, rank=1), usage) == "same"
    assert share_of(replace(usage, rank=1, ordered=True), usage) == "victim"
    assert share_of(replace(usage, rank=1, message="exited with code 1", exit_code=1), usage) == "victim"
    mute = replace(usage, message="exited with code 2")
    assert share_of(replace(mute, rank=1), mute) == "victim"


@pytest.mark.parametrize(
    ("kinds", "completed", "early"),
    [
        (["peer_lost"], [2, 1], 1),
        (["peer_lost", "peer_lost"], [0], 0),
        (["peer_lost", "exception"], [1], None),
        (["signal"], [1], None),  # a crash of its own; one that NCCL's watchdog ended is "peer_lost"
        (["peer_lost", "signal"], [2], None),
        (["peer_lost"], [], None),
        ([], [1], None),
    ],
)
def test_a_rank_that_ended_well_too_early_is_to_blame_where_the_others_only_lost_it(
    kinds: list[str], completed: list[int], early: int | None
) -> None:
    assert left_early([report(number, kind, 1.0) for number, kind in enumerate(kinds)], completed) == early


@pytest.mark.parametrize(
    ("reports", "paused", "left"),
    [
        ([report(0, "peer_lost", 1.0), report(1, "signal", 9.0, ordered=True)], [], 1),
        ([report(0, "peer_lost", 1.0)], [1], 1),  # it had a handler for SIGTERM
        ([report(0, "peer_lost", 1.0), report(1, "peer_lost", 1.0, ordered=True), report(2, "exit", 9.0, ordered=True)], [], 2),
        ([report(0, "peer_lost", 1.0), report(1, "signal", 9.0, ordered=True)], [2], None),  # either may have
        ([report(0, "peer_lost", 1.0), report(1, "peer_lost", 1.0)], [], None),
        ([report(0, "exception", 1.0), report(1, "signal", 9.0, ordered=True)], [], None),
        ([report(0, "peer_lost", 1.0), report(1, "signal", 9.0)], [], None),  # a crash of its own
        ([report(0, "signal", 9.0, ordered=True)], [], None),
        ([], [0], None),
    ],
)
def test_the_only_rank_that_had_not_failed_left_the_group(reports: list[FailureReport], paused: list[int], left: int | None) -> None:
    assert left_group(reports, paused) == left


def test_a_node_that_starts_no_process_is_told_from_a_process_that_exits() -> None:
    refused = report(0, "exit", 1.0)
    assert could_not_start(refused, had_process=False)
    assert not could_not_start(refused, had_process=True)
    assert not could_not_start(report(0, "exit", 1.0, ordered=True), had_process=False)
    assert not could_not_start(report(0, "invalid_input", 1.0), had_process=False)
    assert not could_not_start(
        FailureReport(kind="exit", rank=0, message="", exit_code=3), had_process=False
    )  # it exited before it was seen


def test_a_checkpoint_out_of_reach_is_known_by_the_name_of_its_error() -> None:
    error = CheckpointUnreachableError("no checkpoint can be read here")
    assert could_not_read(describe(error, 0, 0, world_size=4))
    assert describe(error, 0, 0, world_size=4).exception == UNREACHABLE
    assert not could_not_read(report(0, "exception", 1.0))
