"""`DistributedMonitor` outside a job and in one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.monitor import DistributedMonitor
from tests.event_files import read_scalars


def test_each_rank_has_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with DistributedMonitor(log_dir=tmp_path) as monitor:
        monitor.log_training_step(0.5, 32, 0.25, 0.05)
        monitor.log_training_step(loss=0.25, batch_size=32, step_time=0.5, comm_time=0.1, step=7)
        monitor.log_training_step(0.125, 32, 0.5)
    points = read_scalars(tmp_path / "rank-1")
    assert [(point.step, point.value) for point in points["loss"]] == [(1, 0.5), (7, 0.25), (8, 0.125)]
    assert [point.value for point in points["samples_per_second"]] == [128.0, 64.0, 64.0]


def test_communication_that_is_not_known_is_not_recorded(tmp_path: Path) -> None:
    with DistributedMonitor(tmp_path) as monitor:
        monitor.log_training_step(0.5, 32, 0.25, math.nan)
    assert read_scalars(tmp_path).keys() == {"loss", "samples_per_second", "step_seconds"}


@pytest.mark.parametrize(
    ("seconds", "waited", "problem"), [(0.0, 0.0, "step_time=0.0 is not positive"), (1.0, 2.0, "comm_time=2.0 is not between")]
)
def test_times_that_cannot_be_are_refused(seconds: float, waited: float, problem: str, tmp_path: Path) -> None:
    with DistributedMonitor(tmp_path) as monitor, pytest.raises(InvalidInputError, match=problem):
        monitor.log_training_step(0.5, 32, seconds, waited)


def test_a_step_without_samples_and_one_after_the_end_are_refused(tmp_path: Path) -> None:
    monitor = DistributedMonitor(tmp_path)
    with pytest.raises(InvalidInputError, match="batch_size=-5 is less than 1"):
        monitor.log_training_step(0.5, -5, 1.0, 0.0)
    monitor.close()
    with pytest.raises(InvalidInputError, match="the monitor is closed"):
        monitor.log_training_step(0.5, 32, 1.0, 0.0)
