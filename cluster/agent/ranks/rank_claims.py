"""Cuts what ranks say of themselves to what a report to the coordinator can hold: any code in a rank may write to its link and its folder. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from paceline.cluster.protocol import Observed, ObservedRank
from paceline.training.link import FailureReport, GroupCall, Stalled
from paceline.training.reporting.failure_kinds import MAX_TRACEBACK_CHARACTERS, encodable, shortened, without_middle

MOST_LINES, MOST_LINE_CHARACTERS = 30, 2_000
MOST_CALLS, MOST_CALL_CHARACTERS = 20, 200
#: The most ranks that a rank names.
MOST_NAMED = 1024
#: A report is kept to half of the frame that a coordinator takes (16 MiB): it closes a channel that sends more, and would get the same again.
MOST_REPORT_BYTES = 8 << 20
MOST_BARE_CHARACTERS = 200


def bounded_failure(failure: FailureReport) -> FailureReport:
    """The failure with texts that can be stored, each cut to a length that an honest one has."""
    return replace(
        failure,
        message=shortened(encodable(failure.message)),
        exception=shortened(encodable(failure.exception)),
        traceback=without_middle(encodable(failure.traceback), MAX_TRACEBACK_CHARACTERS),
        users_traceback=without_middle(encodable(failure.users_traceback), MAX_TRACEBACK_CHARACTERS),
        where=shortened(encodable(failure.where)),
        signal=failure.signal and _cut(failure.signal),
        last_lines=tuple(_cut(line, MOST_LINE_CHARACTERS) for line in failure.last_lines[-MOST_LINES:]),
        ended=failure.ended[:MOST_NAMED],
    )


def bounded_stall(stall: Stalled) -> Stalled:
    """The stall with texts that can be stored, its newest calls alone, each cut to a length that an honest one has."""
    return replace(
        stall,
        phase=_cut(stall.phase),
        waits=stall.waits and _bounded_call(stall.waits),
        recent=tuple(map(_bounded_call, stall.recent[-MOST_CALLS:])),
        where=shortened(encodable(stall.where)),
        unanswered=stall.unanswered[:MOST_NAMED],
    )


def _bounded_call(call: GroupCall) -> GroupCall:
    return GroupCall(call.number, _cut(call.what))


def _cut(text: str, most: int = MOST_CALL_CHARACTERS) -> str:
    return encodable(text[:most])


def bounded_report(observed: Observed, most_bytes: int = MOST_REPORT_BYTES) -> Observed:
    """The report within `most_bytes` as JSON: of the ranks that take the most of it, as many as are needed are reported without stacks and
    stalls, and with the beginning of a failure's message alone."""
    over = _size(observed) - most_bytes
    if over <= 0:
        return observed
    bare: dict[int, ObservedRank] = {}
    for rank in sorted((rank for each in observed.assignments for rank in each.ranks), key=_size, reverse=True):
        bare[id(rank)] = _bare(rank)
        over -= _size(rank) - _size(bare[id(rank)])
        if over <= 0:
            break
    assignments = (replace(each, ranks=tuple(bare.get(id(rank), rank) for rank in each.ranks)) for each in observed.assignments)
    return replace(observed, assignments=tuple(assignments))


def _size(message: Observed | ObservedRank) -> int:
    return len(msgspec.json.encode(message))


def _bare(rank: ObservedRank) -> ObservedRank:
    failure = rank.failure
    if failure is not None:
        message = f"{failure.message[:MOST_BARE_CHARACTERS]} … (the rest is left out: the ranks of this node have too much to report)"
        failure = replace(failure, message=message, exception="", traceback="", users_traceback="", where="", last_lines=(), ended=())
    return replace(rank, failure=failure, stall=None, stacks=None)
