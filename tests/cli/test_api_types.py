"""The types of answers take what older and newer coordinators send, as far as the command line can do with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from paceline.cli import api_types
from paceline.cli.answers import parsed
from scripts.generate_cli_types import READ
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

MINUTE = "2026-11-24T12:00:00Z"
#: Of a coordinator from before most fields.
OLD_JOB = {
    "id": "01JD0000000000000000000000",
    "name": "gpt",
    "state": "running",
    "desired": "run",
    "progress": {},
    "world_size": 2,
    "generation": 1,
    "restarts": 0,
    "created_at": MINUTE,
    "strategy": "ddp",
}


@pytest.mark.parametrize("name", READ)
def test_only_what_is_needed_has_to_be_there(name: str) -> None:
    fields = msgspec.structs.fields(getattr(api_types, name))
    assert {field.name for field in fields if field.required} == set(READ[name].split())


def test_what_an_older_coordinator_does_not_send_is_empty() -> None:
    old = parsed(OLD_JOB, api_types.Job)
    assert (old.ranks, old.labels, old.revision, old.model, old.failure, old.started_at, old.spec) == ([], {}, 0, "", None, None, None)
    assert (old.progress.step, old.progress.loss, old.can_pause) == (0, None, True)
    removal = parsed({"state": "removed", "asked_by": "ada"}, api_types.DataRemoval)
    assert removal.asked_at is None  # never null today: there is no empty time


def test_what_a_newer_coordinator_adds_is_ignored() -> None:
    rank = {"rank": 0, "node_name": "a", "slot": 0, "state": "migrating", "temperature": 3}
    new = OLD_JOB | {"state": "hibernating", "ranks": [rank], "spec": {"model": {"kind": "of tomorrow"}}, "colour": ["blue"]}
    found = parsed(new, api_types.Job)
    assert (found.state, found.ranks[0].state, found.spec) == ("hibernating", "migrating", {"model": {"kind": "of tomorrow"}})


@pytest.mark.parametrize("missing", ["id", "progress", "created_at"])
def test_an_answer_without_what_is_needed_is_refused(missing: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"missing required field `{missing}`"):
        parsed({name: value for name, value in OLD_JOB.items() if name != missing}, api_types.Job)


def test_numbers_that_json_does_not_have_are_words() -> None:
    assert parsed({"loss": "NaN", "tokens_per_second": 3}, api_types.JobProgress).loss == "NaN"


def test_answers_do_not_change() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        parsed(OLD_JOB, api_types.Job).state = "failed"


@pytest.mark.parametrize(
    "document", [OLD_JOB, job(state="hibernating", colour="blue", pending={"code": "frost", "text": "it is cold", "degrees": -3})]
)
def test_commands_show_jobs_of_older_and_newer_coordinators(
    paceline: Paceline, coordinator: FakeCoordinator, document: dict[str, Any]
) -> None:
    coordinator.on("GET", f"/training/jobs/{document['id']}", Answer(200, document))
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [document], "next_cursor": None}))
    assert document["state"] in paceline("show", document["id"]).stdout
    assert document["state"] in paceline("jobs").stdout
