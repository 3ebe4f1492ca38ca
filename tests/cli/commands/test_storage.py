"""What is kept, and deleting it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, problem

OLD, LIVE = "01J0000000000000000000000A", "01J0000000000000000000000B"
REMOVAL = {"job_id": OLD, "state": "removing", "asked_by": "ada", "checkpoints": False, "removed_at": None, "removed_bytes": 0}
STORAGE: dict[str, Any] = {
    "kinds": [{"kind": "points", "rows": 1234, "bytes": 400_000}],
    "stored_bytes": 400_000,
    "limit_bytes": 20_000_000_000,
    "database_bytes": 500_000,
    "free_in_database_bytes": 1_000,
    "shrinks": True,
    "hint": None,
    "disk": {"free_bytes": 10**9, "total_bytes": 10**11, "low_bytes": 2 * 10**9, "low": True},
    "policy": ["Raw points are kept for 30 days (PACELINE_KEEP_POINTS_DAYS)."],
    "largest_jobs": [{"job_id": OLD, "name": "gpt", "state": "completed", "bytes": 400_000, "ended": True}],
}


def known(coordinator: FakeCoordinator) -> None:
    for job_id, name, state in ((OLD, "gpt", "completed"), (LIVE, "bert", "running")):
        coordinator.on("GET", f"/training/jobs/{job_id}", Answer(200, job(id=job_id, name=name, state=state, progress={"step": 1200})))
        coordinator.on("DELETE", f"/training/jobs/{job_id}/data", Answer(202, REMOVAL))


def kept(job_id: str, checkpoint_id: str, **changes: Any) -> Answer:
    """A page with the one checkpoint of a job."""
    one = {"id": checkpoint_id, "job_id": job_id, "step": 100, "state": "committed", "created_at": "2026-11-20T12:00:00Z", "metrics": {}}
    marks = {"bytes": 2048, "best": False, "latest": True, "pinned": False, "used_by": []}
    return Answer(200, {"items": [one | marks | changes], "next_cursor": None})


def test_delete_names_the_loss_and_wants_a_yes(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    known(coordinator)
    refused = paceline("delete", OLD)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: nothing was done, because there is no terminal to ask at. This would delete")
    assert "hint: add --yes" in refused.stderr
    assert "traces, gradients, media and all files of $PACELINE_ARTIFACTS of gpt" in refused.stderr
    assert "ago (completed, 1,200 steps) for good" in refused.stderr
    assert coordinator.sent("DELETE", f"/training/jobs/{OLD}/data") == []
    coordinator.on("GET", f"/checkpoints/jobs/{OLD}", kept(OLD, "C1"))
    done = paceline("delete", OLD, "--yes", "--checkpoints")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"gpt {OLD}, submitted \d+ d ago: its data is being deleted\n", done.stdout)
    assert [request.query for request in coordinator.sent("DELETE", f"/training/jobs/{OLD}/data")] == [{"checkpoints": "true"}]


@pytest.mark.parametrize(
    ("needed", "why", "way_out"),
    [
        ({"pinned": True}, "it is pinned", "paceline checkpoints unpin C2"),
        (
            {"used_by": [{"job_id": LIVE, "job_name": "bert"}]},
            f"job bert ({LIVE}) was started from it",
            "paceline checkpoints delete C2 --yes",
        ),
    ],
)
def test_delete_touches_nothing_where_a_checkpoint_of_a_later_job_is_needed(
    paceline: Paceline, coordinator: FakeCoordinator, needed: dict[str, Any], why: str, way_out: str
) -> None:
    known(coordinator)
    coordinator.on("GET", f"/training/jobs/{LIVE}", Answer(200, job(id=LIVE, name="bert", state="failed")))
    coordinator.on("GET", f"/checkpoints/jobs/{OLD}", kept(OLD, "C1"))
    coordinator.on("GET", f"/checkpoints/jobs/{LIVE}", kept(LIVE, "C2", **needed))
    refused = paceline("delete", OLD, LIVE, "--checkpoints", "--yes")
    assert refused.returncode == 6
    assert f"nothing was deleted: checkpoint C2 of step 100 of bert stays, {why}" in refused.stderr
    assert f"hint: '{way_out}'" in refused.stderr
    assert [request.method for request in coordinator.requests if request.method == "DELETE"] == []


def test_where_one_of_several_jobs_is_refused_it_is_told_which_are_gone(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """The refusal named one job, and said nothing of the job before it, whose data was gone."""
    known(coordinator)
    coordinator.on("GET", f"/training/jobs/{LIVE}", Answer(200, job(id=LIVE, name="bert", state="failed")))
    coordinator.on("DELETE", f"/training/jobs/{LIVE}/data", problem(403, "forbidden", "bert belongs to grace"))
    refused = paceline("delete", OLD, LIVE, "--yes")
    assert refused.returncode == 4
    told, kept_back, error, *_ = refused.stderr.splitlines()
    assert told.startswith(f"deleted: gpt {OLD}, ")
    assert kept_back.startswith(f"not deleted: bert {LIVE}, ")
    assert error.startswith("error: bert belongs to grace")


def test_job_that_is_named_twice_is_deleted_once(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    known(coordinator)
    listed = [job(id=OLD, name="gpt", state="completed")]
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": listed, "next_cursor": None}))
    done = paceline("delete", "gpt", "gpt", OLD, "--yes")
    assert done.stdout.count("its data is being deleted") == 1, done.stderr
    assert len(coordinator.sent("DELETE", f"/training/jobs/{OLD}/data")) == 1


def test_delete_touches_nothing_where_one_of_the_jobs_has_not_ended(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    known(coordinator)
    refused = paceline("delete", OLD, LIVE, "--yes")
    assert refused.returncode == 6
    assert "bert" in refused.stderr
    assert [request.method for request in coordinator.requests if request.method == "DELETE"] == []


def test_show_says_why_a_log_is_empty(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on(
        "GET", f"/training/jobs/{OLD}", Answer(200, job(id=OLD, state="completed", data_removal={**REMOVAL, "state": "removed"}))
    )
    assert "was deleted: ada asked for it" in paceline("show", OLD).stdout


def test_storage_shows_sizes_policy_and_a_disk_that_is_low(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/cluster/storage", Answer(200, STORAGE))
    done = paceline("storage")
    for words in ("390.6 KiB of 18.6 GiB", "1,234", "LOW", "PACELINE_KEEP_POINTS_DAYS", "gpt"):
        assert words in done.stdout, done.stdout
    assert json.loads(paceline("storage", "--json").stdout) == STORAGE
