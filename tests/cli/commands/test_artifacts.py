"""What a job leaves, brought to a folder."""

from __future__ import annotations

import io
import json
import zipfile

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
