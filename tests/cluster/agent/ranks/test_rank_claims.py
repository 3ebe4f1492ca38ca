"""What a rank says of itself fits into a report to the coordinator, whatever it is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.ranks.exits import read_exit_cause, read_exit_status
from paceline.cluster.agent.ranks.rank_claims import MOST_LINES, bounded_report
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.spawner_link import ExitStatus
from paceline.cluster.protocol import Observed, ObservedAssignment, ObservedRank
from paceline.cluster.states import RankState
from paceline.training.link import Broken, FailureReport, GroupCall, RankOrder, Result, Stalled
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import world

BAD, LONG = "a\0b", "x" * 500_000
HOSTILE = FailureReport(
    kind="exception",
    rank=0,
    message=BAD + LONG,
    exception=BAD,
    traceback=BAD + LONG,
    users_traceback=BAD + LONG,
    where=BAD + LONG,
    signal=BAD + LONG,
    last_lines=(BAD + LONG,) * 50,
    ended=tuple(range(100_000)),
)
#: 4,000 characters of a message, of an exception's name and of a line of code, two tracebacks, and the last lines.
MOST_BYTES_OF_A_FAILURE = 150_000


def fits(value: object) -> bool:
    text = msgspec.json.encode(value)
    return b"\\u0000" not in text and len(text) < MOST_BYTES_OF_A_FAILURE


def folder_of_ended(path: Path) -> RankFolder:
    folder = RankFolder.at(path)
    folder.exit_status.write_bytes(msgspec.json.encode(ExitStatus(pid=7, exit_code=1, signal=None, time=1.0)))
    return folder


def test_a_failure_that_a_rank_leaves_behind_is_cut_and_can_be_stored(tmp_path: Path) -> None:
    folder = folder_of_ended(tmp_path)
    folder.result.write_bytes(
        msgspec.json.encode(Result(outcome="failed", step=3, failure=msgspec.structs.replace(HOSTILE, last_lines=(BAD,) * 50)))
    )
    cause = read_exit_cause(folder, (), world("job"), is_script=True, step=0)
    assert cause is not None
    assert cause.failure is not None
    assert cause.failure.message.startswith("a\N{REPLACEMENT CHARACTER}b")
    assert len(cause.failure.last_lines) == MOST_LINES
    assert fits(cause.failure)


@pytest.mark.parametrize(
    "failure", [b'{"kind":"exit","rank":%d,"message":"x"}' % 2**70, b'{"kind":"exit","rank":0,"message":"x","ended":[%d]}' % 2**70]
)
def test_a_result_with_a_number_that_nothing_can_hold_is_set_aside(tmp_path: Path, failure: bytes) -> None:
    folder = folder_of_ended(tmp_path)
    folder.result.write_bytes(b'{"outcome":"failed","step":0,"failure":%s}' % failure)
    cause = read_exit_cause(folder, (), world("job"), is_script=True, step=0)
    assert cause is not None
    assert cause.failure is not None
    assert cause.failure.message == "exited with code 1"


@pytest.mark.parametrize(
    "status", [f'"pid":{2**70},"exit_code":1', f'"pid":7,"exit_code":{2**70}', '"pid":7,"exit_code":null,"signal":"a\\u0000b"']
)
def test_an_exit_status_that_waitpid_cannot_have_said_is_set_aside(tmp_path: Path, status: str) -> None:
    folder = RankFolder.at(tmp_path)
    folder.exit_status.write_text(f'{{"signal":null,"time":1.0,{status}}}')
    found = read_exit_status(folder)
    assert found is not None
    assert found.unreadable


def test_what_a_living_rank_says_is_cut_and_can_be_stored(tmp_path: Path) -> None:
    table = RankTable(AgentFolder(tmp_path))
    order = RankOrder(spec=StoredSpec({}), world=world("job"), folder="/nowhere", agent_socket="/nowhere")
    key = table.add(order).key
    table.on_message(key, Broken(step=1, failure=HOSTILE), 1.0)
    assert fits(table.ranks[key].broken)
    call = GroupCall(1, BAD + LONG)
    stalled = Stalled(
        step=1,
        phase=BAD,
        seconds=2.0,
        limit=1.0,
        patience=9.0,
        since=1.0,
        waits=call,
        recent=(call,) * 99,
        where=BAD + LONG,
        unanswered=(1,) * 9999,
    )
    table.on_message(key, stalled, 1.0)
    assert fits(table.ranks[key].stall)
    table.refuse(key, msgspec.structs.replace(HOSTILE, message=f"cannot build: {BAD}"))
    assert fits(table.ranks[key].ending)


def test_a_report_that_no_frame_can_hold_leaves_out_what_the_largest_say() -> None:
    def rank(number: int, characters: int) -> ObservedRank:
        failure = FailureReport(kind="exception", rank=number, message="m" * characters, traceback="t" * characters)
        return ObservedRank(rank=number, slot=number, state=RankState.EXITED, outcome="failed", failure=failure, drained=True)

    large = ObservedAssignment(job_id="large", generation=1, ranks=tuple(rank(number, 9_000) for number in range(8)))
    small = ObservedAssignment(job_id="small", generation=1, ranks=(rank(0, 500),))
    observed = Observed(revision=3, assignments=(large, small))
    assert bounded_report(observed) is observed
    cut = bounded_report(observed, 60_000)
    assert len(msgspec.json.encode(cut)) <= 60_000
    assert cut.assignments[1] == small
    assert [(each.rank, each.state, each.drained) for each in cut.assignments[0].ranks] == [(n, RankState.EXITED, True) for n in range(8)]
    told = [each.failure.message for each in cut.assignments[0].ranks if each.failure is not None]
    assert [message.startswith("m" * 200 + " …") for message in told].count(True) == len(told) - [len(message) for message in told].count(
        9_000
    )
    assert 0 < [len(message) for message in told].count(9_000) < 8
