"""What a job leaves, brought to a folder."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from paceline.monitoring import tensorboard
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, problem

ID = job()["id"]
ONE = f"/training/jobs/{ID}"
EVENTS = f"gpt-{ID}/job/events.out.tfevents.1.paceline"


def zipped(**files: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def test_event_files_are_unpacked_and_the_next_command_is_named(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/tensorboard", Answer(200, zipped(**{EVENTS: b"first"})), Answer(200, zipped(**{EVENTS: b"second"})))
    for content in (b"first", b"second"):
        done = paceline("tensorboard", ID, "--into", "curves")
        assert (done.returncode, done.stdout.strip()) == (0, f"curves/{EVENTS}")
        assert "tensorboard --logdir curves" in done.stderr
        assert (paceline.folder / "curves" / EVENTS).read_bytes() == content


def test_a_job_without_points_is_refused_in_the_coordinators_words(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/tensorboard", problem(409, "nothing_recorded", "job gpt is queued and has reported no step yet"))
    done = paceline("tensorboard", ID)
    assert (done.returncode, done.stdout) == (6, "")
    assert "has reported no step yet" in done.stderr


def test_a_folder_that_cannot_be_made_is_named(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    (paceline.folder / "taken").write_text("a file")
    done = paceline("tensorboard", ID, "--into", "taken")
    assert done.returncode == 1
    assert "taken cannot be written: File exists" in done.stderr
    assert coordinator.requests == []


def test_json_names_the_files(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/tensorboard", Answer(200, zipped(**{EVENTS: b"x"})))
    document = json.loads(paceline("tensorboard", ID, "--json").stdout)
    assert document == {"folder": "runs", "files": [f"runs/{EVENTS}"]}


REQUEST = {"id": "01JD00000000000000000000RR", "ranks": [0, 1], "state": "open"}


def artifact(rank: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"01JD0000000000000000000A{rank:02}",
        "rank": rank,
        "generation": 2,
        "first_step": 7,
        "last_step": 9,
        "state": "ready",
        "bytes": 4,
        "created_at": "2026-11-20T12:00:00Z",
        "request_id": REQUEST["id"],
        **changes,
    }


def page(*items: dict[str, Any]) -> Answer:
    return Answer(200, {"items": list(items), "next_cursor": None})


def test_a_profile_waits_for_every_rank_and_brings_the_traces(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", f"{ONE}/profile", Answer(201, REQUEST))
    coordinator.on("GET", f"{ONE}/profile", Answer(200, REQUEST))
    both = page(artifact(1), artifact(0))
    coordinator.on("GET", f"{ONE}/artifacts", page(), page(artifact(0), artifact(1, state="arriving")), both)
    for rank in (0, 1):
        coordinator.on("GET", f"{ONE}/artifacts/{artifact(rank)['id']}/content", Answer(200, b"gzip"))
    done = paceline("profile", ID, "--steps", "3", "--ranks", "0,1", "--into", "t")
    assert done.returncode == 0, done.stderr
    (asked,) = coordinator.sent("POST", f"{ONE}/profile")
    assert asked.body == {"steps": 3, "ranks": [0, 1]}
    assert "idempotency-key" in asked.headers
    assert sorted(done.stdout.split()) == ["t/g2-rank0-steps7-9.json.gz", "t/g2-rank1-steps7-9.json.gz"]
    assert (paceline.folder / "t/g2-rank1-steps7-9.json.gz").read_bytes() == b"gzip"


def test_a_rank_that_has_no_trace_says_why(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("POST", f"{ONE}/profile", Answer(201, REQUEST | {"ranks": [0]}))
    coordinator.on("GET", f"{ONE}/artifacts", page(artifact(0, state="failed", error="the trace has 99 bytes; the limit is 10")))
    done = paceline("profile", ID)
    assert done.returncode == 1
    assert "no trace of rank 0: the trace has 99 bytes; the limit is 10" in done.stderr


def test_traces_are_listed(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", f"{ONE}/artifacts", page(artifact(0), artifact(1, state="failed", bytes=0, error="CUPTI is not there")))
    done = paceline("artifacts", "traces", ID)
    assert done.returncode == 0
    header, ready, failed = done.stdout.splitlines()
    assert header.split()[:4] == ["RANK", "GENERATION", "STEPS", "STATE"]
    assert "7-9" in ready
    assert "g2-rank0-steps7-9.json.gz" in ready
    assert "CUPTI is not there" in failed


def test_followed_event_files_grow_until_the_job_has_ended(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    def files(*steps: int) -> Answer:
        scalars = b"".join(tensorboard.scalars(step, 1.0, {"loss": 1.0}) for step in steps)
        return Answer(200, zipped(**{EVENTS: tensorboard.header(1.0) + scalars}))

    running = Answer(200, job(generation=1))
    coordinator.on("GET", ONE, running, running, running, Answer(200, job(generation=2)), Answer(200, job(generation=2, state="completed")))
    nothing = problem(409, "nothing_recorded", "job gpt has reported no step yet")
    coordinator.on("GET", f"{ONE}/tensorboard", nothing, files(1, 2), files(3), files(1, 2), files(2, 3, 4))
    done = paceline("tensorboard", ID, "--follow", "--every", "0.2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"runs/{EVENTS}"
    asked = [request.query["first_step"] for request in coordinator.sent("GET", f"{ONE}/tensorboard")]
    assert asked == ["0", "0", "3", "0", "3"], "generation 2 may have gone back to an older step"
    data = (paceline.folder / "runs" / EVENTS).read_bytes()
    assert [step for step, _ in tensorboard.records_of_steps(data)] == [1, 2, 3, 4]
