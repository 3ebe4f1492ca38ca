"""Traces that real ranks leave: of the steps that were asked for, whole, and never at the cost of the training."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from pydantic import ValidationError

from paceline.monitoring.artifacts import RankArtifact, file_of, note_of
from paceline.training.link import TraceRequest
from paceline.training.reporting import profiling
from paceline.training.reporting.profiling import Profiling
from paceline.training.schema.profile_window import ProfileWindow
from paceline.training.spec.job import JobSpec
from tests.ranks import make_world
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt


@dataclass
class PretendedRank:
    profile_wanted: TraceRequest | None = None
    stepped_aside: int = 0

    def leave_step(self) -> None:
        self.stepped_aside += 1


@dataclass
class Steps:
    """A rank whose steps are matrix products."""

    folder: Path
    window: ProfileWindow | None = None
    rank: PretendedRank = field(default_factory=PretendedRank)

    def __post_init__(self) -> None:
        self.profiling = Profiling(self.window, make_world(0, 1, 0, self.folder), self.folder, self.rank)

    def run(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            torch.ones(8, 8) @ torch.ones(8, 8)
            self.profiling.between(step)

    def end(self) -> None:
        self.profiling.close()
        self.profiling.wait()


def notes(folder: Path) -> list[RankArtifact]:
    return [msgspec.json.decode(path.read_bytes(), type=RankArtifact) for path in sorted(folder.glob(note_of(Path("*")).name))]


def products_in(file: Path) -> list[str]:
    """Names of the steps and matrix products in a trace."""
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return [event["name"] for event in events if event.get("name") == "aten::mm"]


def test_the_spec_names_the_steps(tmp_path: Path) -> None:
    steps = Steps(tmp_path, ProfileWindow(first_step=4, steps=2))
    steps.run(0, 8)
    steps.end()
    (note,) = notes(tmp_path)
    file = tmp_path / note.name
    assert (note.kind, note.first_step, note.last_step, note.request, note.error) == ("trace", 4, 5, None, None)
    assert note.bytes == file.stat().st_size
    assert note.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert len(products_in(file)) == 2
    assert steps.rank.stepped_aside == 2


def test_a_request_is_obeyed_once_however_often_it_comes(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    steps.run(1, 3)
    steps.rank.profile_wanted = TraceRequest(id="first", steps=1)
    steps.run(4, 10)
    steps.rank.profile_wanted = TraceRequest(id="second", steps=2)
    steps.run(11, 14)
    steps.end()
    assert [(note.request, note.first_step, note.last_step) for note in notes(tmp_path)] == [("first", 6, 6), ("second", 13, 14)]
    assert all(len(products_in(tmp_path / note.name)) == note.last_step - note.first_step + 1 for note in notes(tmp_path))


def test_what_an_earlier_generation_was_asked_is_not_done_again(tmp_path: Path) -> None:
    """Its processes live on, and their link still knows the request."""
    rank = PretendedRank()
    for generation in ("g1", "g2"):
        steps = Steps(tmp_path / generation, rank=rank)
        rank.profile_wanted = TraceRequest(id="asked of g1", steps=1)
        steps.run(1, 5)
        steps.end()
    assert len(notes(tmp_path / "g1")) == 1
    assert notes(tmp_path / "g2") == []


def test_other_ranks_are_left_alone(tmp_path: Path) -> None:
    steps = Steps(tmp_path, ProfileWindow(first_step=2, steps=1, ranks=(1,)))
    steps.run(0, 5)
    steps.end()
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_go_apart_say_that_there_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps(tmp_path, ProfileWindow(first_step=2, steps=5))
    steps.run(0, 3)
    steps.end()
    (note,) = notes(tmp_path)
    assert note.bytes == 0
    assert note.error == "training ended, or its ranks went apart, before step 6 was done; ask again"
    assert not file_of(tmp_path / note.name).exists()
    assert "no trace of steps 2 to 6" in capsys.readouterr().err
    Steps(tmp_path / "next", ProfileWindow(first_step=2, steps=1)).run(0, 5)  # the profiler is free again


def test_a_profiler_that_fails_is_reported_and_steps_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUPTI_ERROR_NOT_INITIALIZED")

    monkeypatch.setattr(profiling, "profile", broken)
    steps = Steps(tmp_path, ProfileWindow(first_step=2, steps=1))
    steps.run(0, 4)
    assert [note.error for note in notes(tmp_path)] == ["RuntimeError: CUPTI_ERROR_NOT_INITIALIZED"]


def test_a_trace_over_the_limit_is_dropped_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "MAX_ARTIFACT_BYTES", 100)
    steps = Steps(tmp_path, ProfileWindow(first_step=2, steps=1))
    steps.run(0, 4)
    steps.end()
    (note,) = notes(tmp_path)
    assert note.error is not None
    assert note.error.endswith("the limit is 100: ask for fewer steps")
    assert not (tmp_path / note.name).exists()


def test_a_disk_that_refuses_does_not_end_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    steps = Steps(tmp_path / "file" / "folder", ProfileWindow(first_step=2, steps=1))
    steps.run(0, 4)
    steps.end()
    assert "WARNING nor can that be noted" in capsys.readouterr().err


def test_a_job_traces_the_steps_of_its_spec_and_loses_nothing(make_job: MakeJob) -> None:
    window = {"first_step": 5, "steps": 2, "ranks": [1]}
    job = make_job(tiny_gpt(nodes=2) | {"profile": window})
    ends = job.run(2)
    assert [end.exit_code for end in ends] == [0, 0]
    assert len(ends[0].curve("loss")) == 12
    assert all(end.curve("peak_memory_bytes")[12] > 1e7 for end in ends)
    (note,) = (path for path in job.folder.rglob("*.note"))
    artifact = msgspec.json.decode(note.read_bytes(), type=RankArtifact)
    assert (note.parent.parent.name, artifact.first_step, artifact.last_step, artifact.error) == ("rank1", 5, 6, None)
    names = {event.get("name") for event in json.loads(gzip.decompress(file_of(note).read_bytes()))["traceEvents"]}
    assert {"ProfilerStep#1", "ProfilerStep#2"} <= names
    assert any(str(name).startswith("aten::") for name in names)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"first_step": 1}, "greater than or equal to 2"),
        ({"steps": 21}, "less than or equal to 20"),
        ({"ranks": []}, "at least 1"),
        ({"ranks": [1, 3]}, "profile.ranks names 3, but ranks go from 0 to 1"),
    ],
)
def test_what_cannot_be_traced_is_refused(profile: dict[str, Any], words: str) -> None:
    spec = tiny_gpt() | {"resources": {"nodes": 2}, "profile": profile}
    with pytest.raises(ValidationError, match=words):
        JobSpec.model_validate(spec)


def test_a_script_has_no_steps_to_trace() -> None:
    with pytest.raises(ValidationError, match="leave it out for script"):
        JobSpec.model_validate({"name": "x", "script": {"path": "x.py"}, "profile": {}})
