"""Predictions for the rows of published tables, from stated hardware alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from paceline.parallelism.planning.cost.predict import StepPrediction, predict
from paceline.parallelism.planning.cost.published import PublishedStep
from paceline.parallelism.planning.machines import Machines
from paceline.parallelism.planning.memory import TrainingSetup
from scripts.scaling_tables.shapes import shape_of

#: Fused kernels (torch.compile) write what is kept once and read it once again; single operations read and write it five times in all.
FUSED = 2.5
GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class ComparedStep:
    """A published row and the prediction for it."""

    row: PublishedStep
    prediction: StepPrediction

    @property
    def rate(self) -> float:
        """The predicted rate of one device, in the source's unit."""
        row = self.row
        return row.units * row.degrees.data / (self.prediction.seconds * row.degrees.world_size)

    @property
    def error(self) -> float:
        """Predicted over published, less one."""
        return self.rate / self.row.rate - 1

    @property
    def memory_gib(self) -> float:
        return self.prediction.memory.total / GIBIBYTE


def compare(row: PublishedStep) -> ComparedStep:
    device = row.source.platform.device
    precision = "fp8" if row.float8 else row.precision
    attention = device.rate(precision) / device.rate(row.precision)
    return ComparedStep(row, predict(shape_of(row, attention), setup_of(row), machines_of(row, device.rate(precision))))


def compare_all(rows: Iterable[PublishedStep]) -> list[ComparedStep]:
    return [compare(row) for row in rows]


def setup_of(row: PublishedStep) -> TrainingSetup:
    return TrainingSetup(
        row.degrees,
        row.optimizer,
        row.precision,
        micro_batch_size=row.samples // row.micro_batches,
        micro_batches=row.micro_batches * row.degrees.data,
        activation_checkpointing=row.checkpointing,
        pipeline_schedule=row.schedule,
        stages_per_rank=row.stages_per_rank,
    )


def machines_of(row: PublishedStep, rate: float) -> Machines:
    machines = row.source.platform.machines(row.degrees.world_size, rate)
    fused = FUSED if row.compiled else 1.0
    return replace(machines, overlaps=row.overlaps, activation_bytes_per_second=fused * machines.activation_bytes_per_second)
