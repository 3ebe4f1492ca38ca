"""How a log line is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from paceline.cli.api_types import LogEntry
from paceline.cli.render.formats import printed_line
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, line, problem

ID = job()["id"]
LOGS = f"/training/jobs/{ID}/logs"


def page(*lines: dict[str, Any], **more: Any) -> Answer:
    return Answer(200, {"items": list(lines), "next_after": lines[-1]["seq"] if lines else 0, "at_end": True, "complete": True, **more})


@pytest.mark.parametrize(
    ("level", "text", "printed"),
    [
        ("info", "step 1", "[0] step 1"),
        ("error", "Traceback", "[0] ERROR Traceback"),
        ("error", "ERROR checkpoint of step 30 failed", "[0] ERROR checkpoint of step 30 failed"),
    ],
)
def test_level_is_said_once(level: str, text: str, printed: str) -> None:
    entry = LogEntry(seq=1, time=datetime(2026, 1, 1, tzinfo=UTC), rank=0, level=level, text=text)
    assert printed_line(entry) == f"{entry.time.astimezone():%H:%M:%S} {printed}"


@pytest.mark.parametrize(("form", "read"), [("jsonl", json.loads), ("json", lambda text: json.loads(text)[0])])
def test_lines_for_scripts_keep_the_order_of_their_fields(
    paceline: Paceline, coordinator: FakeCoordinator, form: str, read: Callable[[str], dict[str, Any]]
) -> None:
    told = line(1, "step 1", generation=3)
    coordinator.on("GET", LOGS, page(told))
    found = read(paceline("logs", ID, "--output", form).stdout)
    assert found == told
    assert list(found) == ["seq", "rank", "time", "level", "text", "generation"]


def test_the_newest_lines_and_those_to_come_are_one_document(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """They were two lists, one behind the other."""
    coordinator.on("GET", LOGS, page(line(1, "step 1"), complete=False), page(line(2, "step 2")), page(next_after=2))
    done = paceline("logs", ID, "--tail", "1", "--follow", "--json")
    assert [entry["text"] for entry in json.loads(done.stdout)] == ["step 1", "step 2"]


def test_times_are_local_with_the_date_and_zone_above_each_day(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    times = ["2026-11-24T21:30:00Z", "2026-11-24T22:30:00Z", "2026-11-24T23:30:00Z"]
    coordinator.on("GET", LOGS, page(*(line(seq, f"line {seq}", time=time) for seq, time in enumerate(times, start=1))))
    done = paceline("logs", ID, TZ="Europe/Berlin")
    assert done.stdout.splitlines() == ["22:30:00 [0] line 1", "23:30:00 [0] line 2", "00:30:00 [0] line 3"]
    assert done.stderr.splitlines() == ["-- 2026-11-24, local time (UTC+01:00) --", "-- 2026-11-25, local time (UTC+01:00) --"]
    whole = paceline("logs", ID, "--timestamps", TZ="Europe/Berlin")
    assert whole.stdout.splitlines()[2] == "2026-11-25T00:30:00.000+01:00 [0] line 3"
    assert whole.stderr == ""


def test_a_search_is_the_coordinators(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", LOGS, page(line(1, "before", context=True), line(2, "loss nan"), line(3, "after", context=True)))
    done = paceline("logs", ID, "--grep", "loss (nan|inf)", "-E", "-C", "1", "--since", "2026-11-20T11:00Z", "--until", "2026-11-20T13:00Z")
    assert [text[:2] for text in done.stdout.splitlines()] == ["  ", "> ", "  "]
    asked = coordinator.sent("GET", LOGS)[0].query
    assert (asked["q"], asked["regex"], asked["context"]) == ("loss (nan|inf)", "true", "1")
    assert [datetime.fromisoformat(asked[name]).astimezone(UTC).hour for name in ("since", "until")] == [11, 13]


def test_a_search_goes_on_over_pages_without_a_match(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", LOGS, page(next_after=100_000, at_end=False), page(line(150_000, "here")), page())
    assert "here" in paceline("logs", ID, "--grep", "h.re", "-E").stdout


def test_what_cannot_be_asked_is_usage(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    for arguments in (["-E"], ["--since", "soon"]):
        assert paceline("logs", ID, *arguments).returncode == 2
    coordinator.on("GET", LOGS, problem(400, "invalid_parameter", "rank=99: the job has ranks 0 to 1"))
    done = paceline("logs", ID, "--rank", "99")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--rank 99: the job has ranks 0 to 1" in done.stderr


@pytest.mark.parametrize("options", [[], ["-n", "1"]])
def test_an_incomplete_log_says_that_it_is(paceline: Paceline, coordinator: FakeCoordinator, options: list[str]) -> None:
    coordinator.on("GET", LOGS, page(line(1, "step 1"), complete=False, arriving=True))
    assert "the end of its log is still arriving. next: paceline logs -f" in paceline("logs", ID, *options).stderr


def test_a_progress_bar_is_printed_as_it_ended(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    bar = [
        line(1, " 10%"),
        line(2, "other rank", rank=1),
        line(3, " 50%", overwrites=True),
        line(4, "100%", overwrites=True),
        line(5, "end"),
    ]
    coordinator.on("GET", LOGS, page(*bar))
    assert [text.split("] ")[1] for text in paceline("logs", ID).stdout.splitlines()] == ["other rank", "100%", "end"]


PRINTED = "\x1b]8;;http://evil\x07\x1b[31mred\x1b[0m\x1b]8;;\x07\x1b[2J end"


def test_what_a_rank_prints_reaches_a_pipe_without_escapes_and_scripts_as_stored(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", LOGS, page(line(1, PRINTED)))
    assert paceline("logs", ID).stdout.split("[0] ")[1] == "red end\n"
    assert json.loads(paceline("logs", ID, "--json").stdout)[0]["text"] == PRINTED


@pytest.mark.parametrize(("asked", "shown"), [({}, "\x1b[31mred\x1b[0m end"), ({"NO_COLOR": "1"}, "red end")])
def test_a_terminal_gets_the_colours_of_a_line_unless_its_user_wants_none(
    paceline: Paceline, coordinator: FakeCoordinator, asked: dict[str, str], shown: str
) -> None:
    coordinator.on("GET", LOGS, page(line(1, PRINTED)))
    coloured = {"TERM": "xterm", "CI": "", "NO_COLOR": "", **asked}
    assert paceline.at_terminal("logs", ID, **coloured)[1].split("[0] ")[1] == shown + "\n"


@pytest.mark.parametrize("options", [["--since", "2030-01-01"], ["--grep", "nan", "-n", "5"], ["--rank", "1", "-f"]])
def test_a_search_without_a_match_says_so_beside_the_output(paceline: Paceline, coordinator: FakeCoordinator, options: list[str]) -> None:
    coordinator.on("GET", LOGS, page())
    coordinator.on("GET", f"/training/jobs/{ID}", Answer(200, job(state="completed")))
    done = paceline("logs", ID, *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "note: no line matches\n")
    assert paceline("logs", ID).stderr == ""


@pytest.mark.parametrize(("state", "words"), [("removed", "was deleted"), ("removing", "is being deleted")])
def test_a_deleted_log_is_told_from_an_empty_one(paceline: Paceline, coordinator: FakeCoordinator, state: str, words: str) -> None:
    removal = {"job_id": ID, "state": state, "asked_by": "ada"}
    coordinator.on("GET", LOGS, page())
    coordinator.on("GET", f"/training/jobs/{ID}", Answer(200, job(state="completed", data_removal=removal)))
    for options in ([], ["--grep", "nan"], ["--json"]):
        assert paceline("logs", ID, *options).stderr == f"note: the log of gpt {words}: ada asked for it\n"
