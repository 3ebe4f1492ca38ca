"""Checkpoints of a job, and of all jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, problem

ID = job()["id"]
CHECKPOINT = {
    "id": "01JD0000000000000000000C01",
    "job_id": ID,
    "step": 100,
    "state": "committed",
    "bytes": 2048,
    "best": True,
    "latest": False,
    "pinned": True,
    "created_at": "2026-11-20T12:00:00Z",
    "metrics": {"eval_loss": 2.5},
}
PATH = f"/checkpoints/{CHECKPOINT['id']}"


def page(*items: dict[str, Any]) -> Answer:
    return Answer(200, {"items": list(items), "next_cursor": None})


@pytest.mark.parametrize("words", [(ID,), ("list", ID), ("--output", "table", ID)])
def test_a_job_behind_the_name_is_listed(paceline: Paceline, coordinator: FakeCoordinator, words: tuple[str, ...]) -> None:
    coordinator.on("GET", f"/checkpoints/jobs/{ID}", page(CHECKPOINT))
    done = paceline("checkpoints", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[:4] == ["100", "committed", "2.0", "KiB"]
    assert "best, pinned" in done.stdout
    assert f"paceline restore {CHECKPOINT['id']}" in done.stderr


def test_without_a_job_those_of_all_are_listed(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    listed = CHECKPOINT | {"job_name": "gpt", "job_state": "failed"}
    coordinator.on("GET", "/checkpoints", page(listed))
    assert paceline("checkpoints").stdout.splitlines()[1].split()[:2] == ["gpt", "100"]
    assert json.loads(paceline("checkpoints", "--json").stdout) == [listed]


@pytest.mark.parametrize(("verb", "pinned", "told"), [("pin", True, "is pinned"), ("unpin", False, "is not pinned")])
def test_pins_are_set_and_taken_back(paceline: Paceline, coordinator: FakeCoordinator, verb: str, pinned: bool, told: str) -> None:
    coordinator.on("PUT", f"{PATH}/{verb}", Answer(200, CHECKPOINT | {"pinned": pinned}))
    assert paceline("checkpoints", verb, CHECKPOINT["id"]).stdout.strip() == f"the checkpoint of step 100 {told}"


def test_one_that_a_job_depends_on_is_deleted_only_with_yes(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    refusal = problem(409, "checkpoint_in_use", "it is pinned. To delete it all the same, repeat with confirm=true")
    coordinator.on("DELETE", PATH, refusal, Answer(202, CHECKPOINT | {"state": "deleting"}))
    refused = paceline("checkpoints", "delete", CHECKPOINT["id"])
    assert (refused.returncode, refused.stdout) == (6, "")
    assert f"hint: paceline checkpoints delete {CHECKPOINT['id']} --yes" in refused.stderr
    done = paceline("checkpoints", "delete", CHECKPOINT["id"], "--yes")
    assert done.stdout.strip() == "the checkpoint of step 100 is deleting"
    assert [request.query["confirm"] for request in coordinator.sent("DELETE", PATH)] == ["false", "true"]


def test_help_is_of_the_group(paceline: Paceline) -> None:
    told = paceline("checkpoints", "--help").stdout
    assert all(verb in told for verb in ("list", "delete", "pin", "unpin"))
