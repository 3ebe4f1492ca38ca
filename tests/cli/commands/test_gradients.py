"""What ranks recorded of their gradients, on a terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, problem

ID = job()["id"]
ONE = f"/training/jobs/{ID}"
STEPS = {"job_id": ID, "steps": [{"step": step, "generation": 1, "ready": 2, "arriving": 0, "failed": 0} for step in (5, 10)]}


def rank(number: int, **changes: Any) -> dict[str, Any]:
    return {"rank": number, "shape": [8], "elements": 8, "norm": 0.5, "zeros": 0, "nans": 0, "infs": 0, **changes}


def parameter(name: str, *ranks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"name": name, "sharded": False, "histogram": [0, 4, 0, 0, 0, 0, 4, 0], "ranks": ranks, "unused": [], **changes}


def step(*parameters: dict[str, Any], ranks: list[dict[str, Any]] | None = None) -> Answer:
    ready = [{"rank": number, "state": "ready", "error": None, "snapshot_id": None} for number in (0, 1)]
    return Answer(200, {"job_id": ID, "step": 5, "generation": 1, "ranks": ranks or ready, "edges": [], "parameters": parameters})


def test_without_a_step_it_lists_the_steps_and_names_the_newest(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/gradients", Answer(200, STEPS))
    done = paceline("gradients", ID)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["STEP", "GENERATION", "RANKS", "ARRIVING", "FAILED"],
        ["5", "1", "2", "0", "0"],
        ["10", "1", "2", "0", "0"],
    ]
    assert f"paceline gradients {ID} --step 10" in done.stderr


def test_a_job_that_records_none_is_told_how(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/gradients", Answer(200, STEPS | {"steps": []}))
    assert "ask for them in the spec of a job: gradients: {every: 100}" in paceline("gradients", ID).stdout


def test_a_step_shows_ranges_over_ranks_and_what_is_wrong(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on(
        "GET",
        f"{ONE}/gradients/5",
        step(
            parameter("well", rank(0), rank(1, norm=2.0, zeros=4)),
            parameter("bad", rank(0), rank(1, norm=None, nans=3, infs=1), sharded=True),
            parameter("dead", rank(0, norm=0.0, zeros=8), unused=[1]),
        ),
    )
    header, well, bad, dead = paceline("gradients", ID, "--step", "5").stdout.splitlines()
    assert header.split()[:3] == ["PARAMETER", "NORM", "ZEROS"]
    assert "0.5 to 2  0.0% to 50.0%  ▁█▁▁▁▁█▁" in well
    assert bad.split("  ")[0] == "bad (shards)"
    assert bad.endswith("rank 1: 3 NaN, 1 infinite")
    assert dead.endswith("all zero on rank 0; not reached on rank 1")


def test_ranks_whose_record_is_missing_come_first(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    ranks = [
        {"rank": 0, "state": "arriving", "error": None, "snapshot_id": None},
        {"rank": 1, "state": "failed", "error": "the disk is full", "snapshot_id": None},
    ]
    coordinator.on("GET", f"{ONE}/gradients/5", step(ranks=ranks))
    assert paceline("gradients", ID, "--step", "5", "--rank", "0,1").stdout.splitlines() == [
        "rank 0: its record is still arriving",
        "rank 1: the disk is full",
        "nothing is recorded of these ranks",
    ]
    assert coordinator.sent("GET", f"{ONE}/gradients/5")[0].query == {"rank": "0,1"}


def test_snapshots_are_brought_to_a_folder(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    ranks = [{"rank": number, "state": "ready", "error": None, "snapshot_id": f"s{number}" if number else None} for number in (0, 1)]
    coordinator.on("GET", f"{ONE}/gradients/5", step(ranks=ranks))
    coordinator.on("GET", f"{ONE}/artifacts/s1/content", Answer(200, b"tensors"))
    done = json.loads(paceline("gradients", ID, "--step", "5", "--into", "kept", "--json").stdout)
    assert done == {"folder": "kept", "files": ["kept/step5-rank1.pt"]}
    assert (paceline.folder / "kept" / "step5-rank1.pt").read_bytes() == b"tensors"


def test_a_refusal_of_too_many_ranks_names_the_option(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    told = "65 ranks have recorded step 5; at most 64 are read at once: name some with rank=0,1"
    coordinator.on("GET", f"{ONE}/gradients/5", problem(400, "invalid_parameter", told))
    refused = paceline("gradients", ID, "--step", "5")
    assert refused.returncode == 2
    assert "name some with --rank 0,1" in refused.stderr


def test_a_rank_without_a_step_is_a_slip(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    done = paceline("gradients", ID, "--rank", "0")
    assert done.returncode == 2
    assert "--rank and --into are about one step" in done.stderr
    assert coordinator.requests == []


def test_show_names_the_newest_recorded_step(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job(spec={"gradients": {"every": 5}})))
    coordinator.on("GET", f"{ONE}/gradients", Answer(200, STEPS))
    assert "gradients of 2 steps, the newest 10: 'paceline gradients" in paceline("show", ID).stdout


ASKED = {"id": "01JD00000000000000000000RR", "job_id": ID, "ranks": 2, "answered": 0, "state": "open", "step": None, "snapshots": False}
DONE = ASKED | {"answered": 2, "state": "done", "step": 5}


def steps(request: dict[str, Any], **changes: Any) -> Answer:
    return Answer(200, {"job_id": ID, "steps": [STEPS["steps"][0] | changes], "request": request})


def test_the_next_step_is_asked_for_awaited_and_shown(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", f"{ONE}/gradients", Answer(201, ASKED))
    coordinator.on("GET", f"{ONE}/gradients", steps(ASKED), steps(DONE, ready=1, arriving=1), steps(DONE))
    coordinator.on("GET", f"{ONE}/gradients/5", step(parameter("head.weight", rank(0), rank(1))))
    done = paceline("gradients", ID, "--next", "--names", "head.*, *.bias")
    assert done.returncode == 0, done.stderr
    assert "head.weight" in done.stdout
    (asked,) = coordinator.sent("POST", f"{ONE}/gradients")
    assert asked.body == {"names": ["head.*", "*.bias"], "snapshots": False}
    assert "idempotency-key" in asked.headers
    assert len(coordinator.sent("GET", f"{ONE}/gradients")) == 3


def test_snapshots_of_the_next_step_are_waited_for_and_downloaded(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    request = {"snapshots": True}
    coordinator.on("POST", f"{ONE}/gradients", Answer(201, ASKED | request))
    coordinator.on("GET", f"{ONE}/gradients", steps(DONE | request))
    file = {"id": "s0", "rank": 0, "generation": 1, "first_step": 5, "last_step": 5, "bytes": 9, "created_at": "2026-11-20T12:00:00Z"}
    arriving, ready = (
        Answer(200, {"items": [file | {"state": state, "request_id": ASKED["id"]}], "next_cursor": None}) for state in ("arriving", "ready")
    )
    coordinator.on("GET", f"{ONE}/artifacts", arriving, ready)
    coordinator.on("GET", f"{ONE}/gradients/5", step(ranks=[{"rank": 0, "state": "ready", "error": None, "snapshot_id": "s0"}]))
    coordinator.on("GET", f"{ONE}/artifacts/s0/content", Answer(200, b"torch"))
    done = paceline("gradients", ID, "--next", "--snapshots", "--into", "kept")
    assert (done.returncode, done.stdout.strip()) == (0, "kept/step5-rank0.pt"), done.stderr
    assert len(coordinator.sent("GET", f"{ONE}/artifacts")) == 2


def test_without_a_wait_it_only_asks(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", f"{ONE}/gradients", Answer(201, ASKED))
    done = paceline("gradients", ID, "--next", "--wait", "0")
    assert (done.returncode, done.stdout.strip()) == (0, "asked all ranks for the gradients of their next step")
    assert coordinator.sent("GET", f"{ONE}/gradients") == []


def test_a_next_step_that_no_rank_has_recorded_is_an_error_with_the_reason(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", f"{ONE}/gradients", Answer(201, ASKED))
    coordinator.on("GET", f"{ONE}/gradients", steps(DONE, ready=0, failed=2))
    failed = [
        {"rank": number, "state": "failed", "error": "no trainable parameter matches hed.*", "snapshot_id": None} for number in (0, 1)
    ]
    coordinator.on("GET", f"{ONE}/gradients/5", step(ranks=failed))
    done = paceline("gradients", ID, "--next", "--names", "hed.*")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no gradients of rank 0: no trainable parameter matches hed.*" in done.stderr


def test_ranks_that_went_apart_before_the_step_are_told_of(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", f"{ONE}/gradients", Answer(201, ASKED))
    coordinator.on("GET", f"{ONE}/gradients", steps(ASKED | {"state": "missed"}))
    done = paceline("gradients", ID, "--next")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the ranks went apart before they had recorded a step" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--next", "--step", "5"], "--step shows a step that is recorded"),
        (["--snapshots"], "--names and --snapshots are about a step to be recorded"),
        (["--names", "a.*"], "--names and --snapshots are about a step to be recorded"),
        (["--next", "--names", " , "], "names no parameter"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    paceline: Paceline, coordinator: FakeCoordinator, options: list[str], words: str
) -> None:
    done = paceline("gradients", ID, *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert coordinator.sent("POST", f"{ONE}/gradients") == []
