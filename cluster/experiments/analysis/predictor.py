"""The cost model as the analysis sees it: fitted to what was measured, it tells the time of steps, also of those that were not measured. Pure.

A predictor is made for one experiment. It knows the job document of each trial by the trial's index; the analysis knows measured numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class MeasuredConfiguration:
    """The medians of a configuration's trials; what is not known is None."""

    trial: int  # index of the configuration's first trial
    world_size: int
    strategy: str
    step_seconds: float
    samples_per_second: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of a step by name
    bytes_per_step: float | None = None
    peak_memory_bytes: float | None = None


@dataclass(frozen=True)
class PredictedStep:
    """A step of a trial's document on some number of ranks."""

    step_seconds: float
    samples_per_second: float
    assumptions: str  # devices, links and whatever else has to hold, in words
    peak_memory_bytes: float | None = None


@dataclass(frozen=True)
class ModelState:
    """State that a rank has to keep of a trial's model, and the memory that it has for it."""

    parameters: int  # of the whole model
    bytes_per_parameter: float  # of a rank's parameters, gradients and optimizer state
    optimizer: str
    memory_bytes: int  # of a slot


class FittedPredictor(Protocol):
    """A cost model whose constants are chosen."""

    def predict(self, trial: int, ranks: int) -> PredictedStep | None:
        """Predict a step of this trial's document on `ranks` ranks, batch as the experiment's kind of scaling says. None: there is no prediction."""
        ...


class Predictor(Protocol):
    """A cost model before it has seen measurements."""

    def fit(self, measured: Sequence[MeasuredConfiguration]) -> FittedPredictor | None:
        """Fit the constants of devices and links to measured steps. None: they do not suffice."""
        ...

    def state(self, trial: int) -> ModelState | None:
        """Count what a rank of this trial keeps of its model. None: the model's shape or a slot's memory is not known, or state is kept elsewhere too."""
        ...
