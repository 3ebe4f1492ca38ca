"""Measurements of an own loop's updates: recorded as curves, and summarized."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from paceline.distributed.env import Position
from paceline.distributed.traffic import SentBytes
from paceline.monitoring.devices import model_flops_utilization
from paceline.monitoring.points import OWN_LOOP_NAMES, communication
from paceline.monitoring.recorder import Recorder
from paceline.training.optim.loss_scale import Unscaled
from paceline.training.reporting.memory import MemoryMeter
from paceline.training.reporting.telemetry import peak_of_device

#: Updates that `Meter.summary` looks back on.
WINDOW = 100


@dataclass(frozen=True)
class Update:
    """Result of one step of the optimizer, the same on every rank except for times."""

    step: int  # batches that each rank has trained on by now: what curves and checkpoints go by
    loss: float  # mean over the batches of all ranks in this update
    gradient_norm: float  # of all gradients together, before clipping
    learning_rate: float  # of the optimizer's first group
    scale: Unscaled  # of losses, from now on; with fp16 it tells how many updates were skipped
    samples: int  # of all ranks
    seconds: float
    parts: Mapping[str, float]  # STEP_PARTS, without communication where it is not known; they add up to `seconds`
    sent: SentBytes  # by this rank
    held_back: bool = False  # not applied, as on_nan or on_spike asks
    skipped_updates: int = 0  # since step 0: for that reason, or since gradients overflowed in fp16


@dataclass(frozen=True)
class TrainedBatch:
    """Result of one batch of this rank."""

    loss: torch.Tensor  # of this rank's batch alone; on the device, so that reading it may wait
    parts: Mapping[str, float]  # seconds, as those of an update
    update: Update | None  # None: gradients are still being accumulated


@dataclass(frozen=True)
class SampleSize:
    """Tokens and floating-point operations of one sample, as far as the user gives them."""

    tokens: int | None
    flops: float | None  # forward and backward


class Meter:
    def __init__(self, place: Position, device: torch.device, precision: str, sample: SampleSize, recorders: Sequence[Recorder]) -> None:
        self._place, self._device, self._sample = place, device, sample
        self._recorders = recorders
        for recorder in recorders:
            recorder.reserve(OWN_LOOP_NAMES)
        self._newest: deque[Update] = deque(maxlen=WINDOW)
        self._peak = peak_of_device(device, precision)
        self._memory = MemoryMeter(device.type)

    def note(self, update: Update) -> None:
        self._newest.append(update)
        values = {**update.parts, "step_seconds": update.seconds, **self._memory.read(), **communication(*update.sent)}
        if self._place.rank == 0:
            values |= job_values(update) | self._rates(update.samples / update.seconds)
        if update.held_back:  # of its loss an event tells: whoever reads the curve would say that it spoils what is trained from there on
            values.pop("loss", None)
        for recorder in self._recorders:
            recorder.record(update.step, dict(values))

    def summary(self) -> dict[str, float]:
        """Summarize the newest WINDOW updates: medians of times, rates over all, the newest loss and norm. Empty before the first
        update."""
        if not self._newest:
            return {}
        seconds = sum(update.seconds for update in self._newest)
        times = [{"step_seconds": update.seconds, **update.parts} for update in self._newest]
        medians = {name: statistics.median(each[name] for each in times) for name in times[0]}
        rates = self._rates(sum(update.samples for update in self._newest) / seconds)
        return job_values(self._newest[-1]) | rates | medians | self._memory.read()

    def _rates(self, samples_per_second: float) -> dict[str, float]:
        """Rates as far as they are known: there is no MFU of a model of unknown arithmetic, or on a device whose peak is not listed."""
        rates = {"samples_per_second": samples_per_second}
        if self._sample.tokens is not None:
            rates["tokens_per_second"] = samples_per_second * self._sample.tokens
        if self._sample.flops is not None and self._peak is not None:
            peak = self._peak.flops * self._place.world_size
            rates["mfu"] = model_flops_utilization(samples_per_second, self._sample.flops, peak)
        return rates

    def flush(self) -> None:
        for recorder in self._recorders:
            recorder.flush()


def job_values(update: Update) -> dict[str, float]:
    values = {"loss": update.loss, "gradient_norm": update.gradient_norm, "learning_rate": update.learning_rate, **update.scale.metrics}
    return values | ({"skipped_updates": float(update.skipped_updates)} if update.skipped_updates else {})
