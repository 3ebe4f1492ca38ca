"""Everything in `user_code/tricks.py`, several scripts at once on one node, beside a job that must not notice; one after the other in `make test-all`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack
from tests.hostile.rounds import Rounds
from tests.hostile.witness import Witness
from tests.ports import free_port
from tests.release_only import AT_LENGTH

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # where a round does harm, its tricks are played one by one

#: Tricks beside each other: most of what one takes is waiting for its processes to start and to end.
AT_ONCE = 1 if AT_LENGTH else 8
SLOTS = AT_ONCE + 1

#: An exception in the caller's own line: the job fails, and its page says why.
REFUSED = {
    "step_fraction": "0.5",
    "step_negative": "-1",
    "step_2_to_the_53": "9007199254740992",
    "step_2_to_the_64": "18446744073709551616",
    "step_text": "'7'",
    "step_true": "True",
    "step_none": "None",
    "step_nan": "nan",
    "value_text": "loss",
    "value_list": "loss",
    "value_complex": "loss",
    "value_none": "loss",
    "name_reserved": "epoch_samples",
    "name_long": "xxx",
    "name_surrogate": "",
    "name_nul": "",
}
FAILS = {
    "ends_by_itself",
    "ends_in_native_code",
    "ends_with_an_odd_code",
    "ends_in_a_long_message",
    "ends_in_surrogates",
    "ends_in_recursion",
    "result_that_no_row_holds",
}
COMPLETES = [
    "step_numpy",
    "infinities",
    "names_by_the_thousand",
    "names_in_one_call",
    "points_flood",
    "spool_of_odd_records",
    "events_nobody_knows",
    "spool_of_noise",
    "spool_is_a_folder",
    "spool_shrinks",
    "output_odd_bytes",
    "output_of_long_ago",
    "output_one_long_line",
    "output_empty_lines",
    "output_flood",
    "output_file_is_gone",
    "output_is_shortened",
    "folder_that_stays",
    "folder_of_odd_things",
    "folder_very_deep",
    "folder_of_many_files",
    "stray_files_among_the_jobs",
    "process_that_stays",
    "twenty_children",
    "ends_at_once",
    "ends_in_a_thread",
    "agent_told_nonsense",
    "agent_told_without_end",
    "agent_told_as_somebody_else",
]
#: What it says of its own end is gone or false: that it ends at all is what counts.
EITHER = ("bookkeeping_damaged", "result_of_lies", "exit_status_of_lies", "folder_is_gone", "takes_all_descriptors")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One agent, with a slot for the job beside."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.up(free_port(), agents=1, slots=SLOTS)
    yield stack
    stack.down()
    subprocess.run(["chattr", "-R", "-i", str(stack.data)], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["chmod", "-R", "u+rwX", str(stack.data)], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", str(stack.data)], check=True)  # too deep for pytest, which would clean it away some day


@pytest.fixture(scope="module")
def rounds(stack: Stack, request: pytest.FixtureRequest) -> Iterator[Rounds]:
    """The tricks that were asked for. The job beside is checked as a whole when all are done."""
    here = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    witness = Witness(stack, SLOTS)
    yield Rounds([item.callspec.params["name"] for item in here if hasattr(item, "callspec")], AT_ONCE, witness.play, witness.find_harm)
    witness.end()


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_cannot_be_recorded_raises_in_its_own_line(stack: Stack, rounds: Rounds, name: str) -> None:
    job = rounds.result_of(name)
    assert job["state"] == "failed", job
    lines = [line["text"] for line in stack.get(f"/training/jobs/{job['id']}/logs", limit=200)["items"]]
    assert "done" not in lines
    assert any(("TypeError" in line or "ValueError" in line) and REFUSED[name] in line for line in lines), lines


@pytest.mark.parametrize("name", [*COMPLETES, *sorted(FAILS), *EITHER])
def test_nobody_else_notices(rounds: Rounds, name: str) -> None:
    job = rounds.result_of(name)
    expected = {"completed"} if name in COMPLETES else {"failed"} if name in FAILS else {"completed", "failed"}
    assert job["state"] in expected, job


def test_every_trick_is_played() -> None:
    names = subprocess.run(
        [sys.executable, "-c", "from tests.hostile.user_code import tricks; print(*tricks.TRICKS)"],
        env={"PACELINE_RANK_FOLDER": "/nowhere", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(names) == {*REFUSED, *COMPLETES, *FAILS, *EITHER}
