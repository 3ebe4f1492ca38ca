"""Jobs named by a name that several have, by the beginning of an id, and by a name that is only nearly there."""

from __future__ import annotations

import json
import re

import pytest

from paceline.cli.references import near_names
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

ID, OTHER = job()["id"], "01JD0000000000000000000002"


def test_of_several_jobs_of_one_name_it_says_which_was_taken(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    newest, older = job(state="queued"), job(id=OTHER)
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [newest, older], "next_cursor": None}))
    coordinator.on("GET", f"/training/jobs/{ID}", Answer(200, newest))
    told = paceline("show", "gpt").stderr
    assert re.match(
        rf"note: 2 jobs are named gpt: taking the newest, {ID} \(queued, submitted \d+ \w+ ago\). By id: {OTHER} \(running", told
    )


def test_an_archived_job_leaves_its_name_to_an_older_one_that_is_not(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    archived, older = job(id=OTHER, state="completed", archived_at="2026-11-21T12:00:00Z"), job()
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [archived, older], "next_cursor": None}))
    coordinator.on("GET", f"/training/jobs/{ID}", Answer(200, older))
    shown = paceline("show", "gpt", "--json")
    assert json.loads(shown.stdout)["id"] == ID
    assert f"taking the newest that is not archived, {ID} (running, submitted" in shown.stderr
    assert f"By id: {OTHER} (completed, archived, submitted" in shown.stderr


def test_the_beginning_of_an_id_names_a_job_if_no_other_id_begins_so(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [job(), job(id=OTHER)], "next_cursor": None}))
    coordinator.on("GET", f"/training/jobs/{OTHER}", Answer(200, job(id=OTHER)))
    assert json.loads(paceline("show", OTHER.lower(), "--json").stdout)["id"] == OTHER
    refused = paceline("show", ID[:10])
    assert (refused.returncode, f"2 ids of jobs begin with {ID[:10]}" in refused.stderr, OTHER in refused.stderr) == (2, True, True)


def test_near_names_are_those_that_begin_so_and_those_with_a_slip() -> None:
    names = ["small", "smaller-one", "large", "gpt-base"]
    assert near_names("smal", names) == ["small", "smaller-one"]
    assert near_names("GTP-base", names) == ["gpt-base"]
    assert near_names("qwerty", names) == near_names("", names) == []


@pytest.mark.parametrize(
    ("command", "path", "name"),
    [
        (("show", "smal"), "/training/jobs", "small"),
        (("nodes", "cordon", "nod-1"), "/cluster/nodes", "node-1"),
        (("pools", "delete", "labb", "--yes"), "/cluster/pools", "lab"),
        (("nodes", "add", "--pool", "la"), "/cluster/pools", "lab"),
        (("experiment", "show", "sweeep"), "/experiments", "sweep"),
    ],
    ids=["job", "node", "deleted pool", "pool of nodes", "experiment"],
)
def test_a_name_that_is_not_there_has_the_nearest_one_offered(
    paceline: Paceline, coordinator: FakeCoordinator, command: tuple[str, ...], path: str, name: str
) -> None:
    coordinator.on("GET", path, Answer(200, {"items": [job(name=name)], "next_cursor": None}))
    refused = paceline(*command)
    assert refused.returncode == 5
    assert f"hint: did you mean {name}? 'paceline" in refused.stderr
    assert {request.method for request in coordinator.requests} == {"GET"}
