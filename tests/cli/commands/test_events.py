"""The history on a terminal."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, problem

ID = job()["id"]
OF_JOB = f"/training/jobs/{ID}/events"


def event(seq: int, message: str = "queued -> starting", cause: str = "room for 2 ranks on a, b") -> dict[str, Any]:
    actor = {"kind": "system", "id": "", "name": "paceline"}
    return {"seq": seq, "time": "2026-11-20T12:00:00Z", "type": "job.state", "actor": actor, "cause": cause, "message": message, "data": {}}


def page(*items: dict[str, Any]) -> Answer:
    return Answer(200, {"items": list(items), "next_after": items[-1]["seq"] if items else 0})


def test_the_newest_events_are_printed_the_oldest_first(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/events", page(event(7), event(9, "a message " * 20)))
    done = paceline("events", "-n", "2")
    assert done.returncode == 0, done.stderr
    _, first, second = done.stdout.splitlines()
    assert first == "11-20 12:00:00  job.state  paceline  queued -> starting (room for 2 ranks on a, b)"[:79] + "…"
    assert second.endswith("…")
    assert max(map(len, done.stdout.splitlines())) == 80
    assert coordinator.sent("GET", "/events")[0].query == {"tail": "true", "limit": "2"}
    assert json.loads(paceline("events", "--json").stdout)[0] == event(7)


def test_all_behind_a_position_are_read_page_by_page(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", OF_JOB, page(event(5)), page(event(6)), page())
    done = paceline("events", ID, "--after", "4", "--output", "jsonl")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [5, 6]
    assert [request.query["after"] for request in coordinator.sent("GET", OF_JOB)] == ["4", "5", "6"]


def test_following_a_job_ends_with_it_and_misses_nothing(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", OF_JOB, page(event(5)), page(event(6)), page(), page(event(7, "running -> completed", "all ranks ended")), page())
    coordinator.on("GET", f"/training/jobs/{ID}", Answer(200, job()), Answer(200, job(state="completed")))
    done = paceline("events", ID, "--follow")
    assert done.returncode == 0, done.stderr
    assert [line[:8] for line in done.stdout.splitlines()] == ["12:00:00"] * 3
    assert done.stdout.splitlines()[-1] == "12:00:00 job.state running -> completed (all ranks ended)"


def test_times_are_local_as_those_of_logs(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", OF_JOB, page(event(5)), page(event(5)), page())
    coordinator.on("GET", f"/training/jobs/{ID}", Answer(200, job(state="completed")))
    assert paceline("events", ID, TZ="Asia/Kolkata").stdout.splitlines()[1].startswith("11-20 17:30:00  job.state")
    assert paceline("events", ID, "--follow", TZ="Asia/Kolkata").stdout.startswith("17:30:00 job.state")


def test_an_unknown_job_exits_5(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [], "next_cursor": None}))
    assert paceline("events", "nobody").returncode == 5
    coordinator.on("GET", OF_JOB, problem(404, "not_found", "no such job"))
    assert paceline("events", ID).returncode == 5
