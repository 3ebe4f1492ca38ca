"""Cancelling at a terminal, in a script, and of several jobs; how a change reads."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

ID, OTHER = job()["id"], "01JD0000000000000000000002"


def serves(coordinator: FakeCoordinator, *jobs: dict[str, object]) -> None:
    for each in jobs:
        path = f"/training/jobs/{each['id']}"
        coordinator.on("GET", path, Answer(200, each))
        coordinator.on("DELETE", path, Answer(200, {**each, "state": "stopping"}))


@pytest.mark.parametrize(("typed", "code", "cancelled"), [("y\n", 0, 1), ("n\n", 1, 0)])
def test_cancel_at_a_terminal_says_what_is_lost_and_asks(
    paceline: Paceline, coordinator: FakeCoordinator, typed: str, code: int, cancelled: int
) -> None:
    """It asked nothing, and the wrong one of two jobs of a name was gone."""
    serves(coordinator, job(progress={"step": 120, "total_steps": 1000, "last_checkpoint_step": 100}))
    ended, shown = paceline.at_terminal("cancel", ID, typed=typed, until="Cancel? [y/N]")
    assert ended == code, shown
    assert f"gpt ({ID}): running at step 120/1,000; 20 steps since its last checkpoint will be lost" in shown
    assert len(coordinator.sent("DELETE", f"/training/jobs/{ID}")) == cancelled


def test_cancel_with_yes_asks_nothing_at_a_terminal(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    serves(coordinator, job())
    code, shown = paceline.at_terminal("cancel", ID, "--yes")
    assert (code, "Cancel?" in shown, "Cancelling gpt (stopping)..." in shown) == (0, False, True)


def test_cancel_in_a_script_asks_nothing(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    serves(coordinator, job())
    assert paceline("cancel", ID).returncode == 0


def test_cancel_takes_several_jobs_and_leaves_alone_those_that_have_ended(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    serves(coordinator, job(), job(id=OTHER, name="done", state="completed"))
    done = paceline("cancel", OTHER, ID, "--json")
    assert done.returncode == 0, done.stderr
    assert [each["id"] for each in json.loads(done.stdout)] == [ID]
    assert f"done ({OTHER}) is left alone: it has ended, completed" in done.stderr
    assert not coordinator.sent("DELETE", f"/training/jobs/{OTHER}")


def test_nothing_is_cancelled_where_one_of_the_names_is_wrong(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    serves(coordinator, job())
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [], "next_cursor": None}))
    assert paceline("cancel", ID, "nobody").returncode == 5
    assert not coordinator.sent("DELETE", f"/training/jobs/{ID}")


def test_a_change_reads_as_under_way_until_it_is_done(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"/training/jobs/{ID}", Answer(200, job()))
    coordinator.on("PUT", f"/training/jobs/{ID}/pause", Answer(200, job()), Answer(200, job(state="paused")))
    assert [paceline("pause", ID).stdout for _ in range(2)] == ["Pausing gpt (running)...\n", "gpt is paused\n"]
