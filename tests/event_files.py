"""Reads event files back with TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ALL = {"scalars": 0}


class Point(NamedTuple):
    wall_time: float
    step: int
    value: float


def read_scalars(folder: Path) -> dict[str, list[Point]]:
    """By tag, as TensorBoard would draw them."""
    reader = EventAccumulator(str(folder), size_guidance=ALL)
    reader.Reload()
    return {tag: [Point(point.wall_time, point.step, point.value) for point in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
