"""Event files that grow: what TensorBoard reads of them at any time is each step once."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from paceline.cli.event_folder import EventFolder
from paceline.monitoring import tensorboard

NAME = "gpt-1/job/events.out.tfevents.0000000001.paceline"
OTHER = "gpt-1/rank1/events.out.tfevents.0000000001.paceline"


def event_file(*steps: int, value: float = 1.0) -> bytes:
    return tensorboard.header(1.0) + b"".join(tensorboard.scalars(step, float(step), {"loss": value * step}) for step in steps)


def archive(folder: Path, **files: bytes) -> Path:
    path = folder / "files.zip"
    with zipfile.ZipFile(path, "w") as found:
        for name, data in files.items():
            found.writestr(name, data)
    return path


def steps_in(path: Path) -> list[int]:
    return [step for step, _ in tensorboard.records_of_steps(path.read_bytes())]


def test_a_file_takes_what_is_behind_its_own_last_step(tmp_path: Path) -> None:
    grown = EventFolder(tmp_path / "runs")
    grown.write(archive(tmp_path, **{NAME: event_file(1, 2, 300), OTHER: event_file(1)}))
    reading = EventAccumulator(str((tmp_path / "runs" / NAME).parent))  # a TensorBoard that has it open
    reading.Reload()
    assert grown.next_step == 2
    assert grown.append(archive(tmp_path, **{NAME: event_file(2, 300, 301), OTHER: event_file(2, 300)})) == 3
    path = tmp_path / "runs" / NAME
    assert (steps_in(path), steps_in(tmp_path / "runs" / OTHER)) == ([1, 2, 300, 301], [1, 2, 300])
    assert path.read_bytes() == event_file(1, 2, 300, 301)
    reading.Reload()
    assert [(point.step, point.value) for point in reading.Scalars("loss")] == [(step, float(step)) for step in (1, 2, 300, 301)]


def test_a_rank_that_joins_gets_a_file(tmp_path: Path) -> None:
    grown = EventFolder(tmp_path / "runs")
    grown.write(archive(tmp_path, **{NAME: event_file(1, 2)}))
    grown.append(archive(tmp_path, **{NAME: event_file(), OTHER: event_file(3)}))
    assert (tmp_path / "runs" / OTHER).read_bytes() == event_file(3)


def test_a_job_that_went_back_makes_its_files_anew(tmp_path: Path) -> None:
    grown = EventFolder(tmp_path / "runs")
    grown.write(archive(tmp_path, **{NAME: event_file(1, 2, 3)}))
    grown.write(archive(tmp_path, **{NAME: event_file(1, 2, value=9.0)}))
    assert steps_in(tmp_path / "runs" / NAME) == [1, 2]
    assert not list((tmp_path / "runs").rglob("*.part"))
    assert grown.next_step == 3


def test_a_record_that_is_cut_off_is_left_out() -> None:
    whole = event_file(1, 2)
    assert [step for step, _ in tensorboard.records_of_steps(whole[:-3])] == [1]
    assert list(tensorboard.records_of_steps(b"")) == []
    assert tensorboard.header_in(whole) == tensorboard.header(1.0)
