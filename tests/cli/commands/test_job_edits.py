"""Jobs are edited, archived, and listed by what they are filed under."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, problem

ID = job()["id"]
ONE = f"/training/jobs/{ID}"
LIST = "/training/jobs"


def test_edit_sends_what_is_to_be_changed_and_nothing_else(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("PATCH", ONE, Answer(200, job(priority=80, labels={"team": "nlp"}, notes="keep")))
    done = paceline("edit", ID, "--priority", "80", "--notes", "keep", "-l", "team=nlp", "--remove-label", "old")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "gpt: project default, priority 80, labels team=nlp, notes 'keep'"
    (request,) = coordinator.sent("PATCH", ONE)
    assert request.body == {"priority": 80, "notes": "keep", "labels": {"team": "nlp", "old": None}}


def test_a_job_is_found_by_its_whole_name_among_archived_ones_too(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", LIST, Answer(200, {"items": [job()], "next_cursor": None}))
    coordinator.on("PUT", f"{ONE}/unarchive", Answer(200, job()))
    done = paceline("unarchive", "gpt")
    assert (done.returncode, done.stdout.strip()) == (0, "Unarchived 1 job: gpt")
    (request,) = coordinator.sent("GET", LIST)
    assert (request.query["name"], request.query["archived"]) == ("gpt", "include")


def test_several_jobs_are_archived_at_once(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    other = ID[:-1] + "2"
    coordinator.on("PUT", f"{ONE}/archive", Answer(200, job()))
    coordinator.on("PUT", f"/training/jobs/{other}/archive", Answer(200, job(id=other, name="mlp")))
    done = paceline("archive", ID, other)
    assert (done.returncode, done.stdout.strip()) == (0, "Archived 2 jobs: gpt, mlp")
    assert [each["name"] for each in json.loads(paceline("archive", ID, other, "--json").stdout)] == ["gpt", "mlp"]


def test_a_running_job_is_not_archived(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("PUT", f"{ONE}/archive", problem(409, "job_not_ended", "job gpt is running"))
    done = paceline("archive", ID)
    assert (done.returncode, "job gpt is running" in done.stderr) == (6, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["edit", ID], "edit needs something to change"),
        (["edit", ID, "other", "--name", "x"], "--name is for one job"),
        (["edit", ID, "--label", "team"], "--label team is not KEY=VALUE"),
        (["jobs", "--label", "team"], "--label team is not KEY=VALUE"),
        (["edit", ID, "--label", "a=1", "--label", "a=2"], "--label a is given twice, as '1' and '2'"),
        (["jobs", "--label", "a=1", "--label", "a=2"], "--label a is given twice"),
        (["edit", ID, "--label", "a=1", "--remove-label", "a"], "label a is to be changed and removed"),
        (["jobs", "--since", "yesterday"], "--since 'yesterday' is neither an age nor a date"),
    ],
)
def test_what_means_nothing_is_refused_before_anything_is_sent(
    paceline: Paceline, coordinator: FakeCoordinator, words: list[str], message: str
) -> None:
    done = paceline(*words)
    assert (done.returncode, message in done.stderr, coordinator.requests) == (2, True, []), done.stderr


def test_jobs_are_listed_by_what_they_are_filed_under(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on(
        "GET",
        LIST,
        Answer(200, {"items": [job(created_by="ada", ran_seconds=95.0, started_at="2026-11-20T12:00:00Z")], "next_cursor": None}),
    )
    done = paceline(
        "jobs",
        "--project",
        "text",
        "--user",
        "ada,bob",
        "--model",
        "gpt",
        "--label",
        "team=nlp",
        "--since",
        "2d",
        "--archived",
        "--no-trials",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == [
        "NAME",
        "STATE",
        "STEP",
        "LOSS",
        "THROUGHPUT",
        "RAN",
        "FOR",
        "ETA",
        "RANKS",
        "USER",
        "AGE",
        "ID",
    ]
    assert "1 min 35 s" in done.stdout
    (request,) = coordinator.sent("GET", LIST)
    since = datetime.fromisoformat(request.query.pop("created_after"))
    assert abs(since - (datetime.now(UTC) - timedelta(days=2))) < timedelta(minutes=5)
    wanted = {"project": "text", "user": "ada,bob", "model": "gpt", "label.team": "nlp", "archived": "only", "trials": "exclude"}
    assert wanted.items() <= request.query.items()


def test_a_paused_job_has_no_eta(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    progress = {"step": 7, "total_steps": 10, "eta_seconds": 75.0}
    coordinator.on("GET", LIST, Answer(200, {"items": [job(state="paused", progress=progress)], "next_cursor": None}))
    assert "1m15s" not in paceline("jobs").stdout
