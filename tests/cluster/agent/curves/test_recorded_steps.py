"""What a rank has recorded, seen by a reader that begins anew: also of a spool whose head is gone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.cluster.agent.curves.recorded_steps import RecordedSteps, SpoolWatch
from paceline.cluster.agent.upload.spool_head import give_up_head
from paceline.monitoring.points import MetricRecord
from paceline.monitoring.spool import SpoolWriter


def write(path: Path, steps: range) -> None:
    writer = SpoolWriter(path)
    for step in steps:
        writer.append(msgspec.json.encode(MetricRecord(seq=step, step=step, time=0.0, values={"loss": 1.0})))
    writer.close()


def test_every_record_is_counted_and_no_step_is_taken_twice(tmp_path: Path) -> None:
    write(tmp_path / "spool", range(1, 11))
    steps = RecordedSteps()
    watch = SpoolWatch(tmp_path / "spool", steps)
    watch.catch_up()
    assert watch.records == 10
    assert [steps.add("loss", step) for step in (0, 3, 10, 11)] == [True, False, False, True]


def test_steps_in_a_head_that_is_gone_are_not_recorded_again(tmp_path: Path) -> None:
    """A reader that was started anew found no record of them, and would have sent the whole file of a long run a second time."""
    path = tmp_path / "spool"
    write(path, range(1, 101))
    gone = give_up_head(path, path.stat().st_size // 2).records
    assert 40 < gone < 60
    steps = RecordedSteps()
    watch = SpoolWatch(path, steps)
    watch.catch_up()
    assert watch.records == 100
    assert [steps.add(name, step) for name in ("loss", "accuracy") for step in (1, gone)] == [False] * 4
    assert [steps.add("loss", 100), steps.add("loss", 101), steps.add("accuracy", 100)] == [False, True, True]
