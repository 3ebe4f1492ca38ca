"""Event files that grow while TensorBoard reads them."""

from __future__ import annotations

from pathlib import Path

from paceline.monitoring.event_file import EventFileWriter
from paceline.monitoring.recorder import Measurement
from tests.event_files import read_scalars


def test_what_is_written_is_there_at_once_and_a_second_run_adds_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    first = EventFileWriter(folder)
    first.write([Measurement(1, 10.0, {"loss": 2.0}), Measurement(2, 11.0, {"loss": 1.0, "rate": 0.5})])
    points = read_scalars(folder)
    assert [(point.step, point.wall_time, point.value) for point in points["loss"]] == [(1, 10.0, 2.0), (2, 11.0, 1.0)]
    second = EventFileWriter(folder)
    second.write([Measurement(3, 12.0, {"loss": 0.5})])
    assert [point.step for point in read_scalars(folder)["loss"]] == [1, 2, 3]
    first.close()
    second.close()
