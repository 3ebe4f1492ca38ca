"""The planner's cost model as the analysis asks for it: fitted to an experiment's own trials, and asked about numbers of ranks that nobody has. Pure.

What it cannot know it does not tell: models of unknown shape, devices that are not in the catalogue, worlds over which a batch or a model cannot be
divided, and anything from fewer than four different configurations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import ValidationError

from paceline.cluster.experiments.analysis.predictor import MeasuredConfiguration, ModelState, PredictedStep
from paceline.cluster.experiments.analysis.words import percent
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.grid import expand
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.monitoring.words import plural
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.model_shape import CPU, CUDA, Kernels, ModelShape, NumberFormats, Precision
from paceline.parallelism.plan import WorldSizeMismatchError
from paceline.parallelism.planning.cost.errors import CostModelError
from paceline.parallelism.planning.cost.fit import FittedSpeeds, fit
from paceline.parallelism.planning.cost.parameters import MeasuredPlan
from paceline.parallelism.planning.cost.speeds import Speeds, of_cpu_slots, of_device
from paceline.parallelism.planning.machines import Link
from paceline.parallelism.planning.memory import TrainingSetup, state_bytes_per_parameter
from paceline.training.planning.estimates import setup_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec

Scaling = Literal["strong", "weak"]
#: Configurations that a fit is made to; of more, so many that lie evenly apart: a second is enough for it.
MOST_FITTED = 48


def predictor_of(spec: ExperimentSpec, facts: Sequence[TrialFacts], device: str | None = None) -> CostPredictor:
    """Return the cost model for an experiment's analysis. `device`: as the driver gives it; None: CPU slots.

    Documents are those of the grid; trials that a search has drawn have none here, and no predictions.
    """
    documents = {_key(cell.values, cell.repeat, cell.baseline): cell.document for cell in expand(spec).cells}
    keys = {fact.index: _key(fact.values, fact.repeat, fact.baseline) for fact in facts}
    return CostPredictor(
        {index: documents[key] for index, key in keys.items() if key in documents},
        spec.scaling,
        device,
        {fact.index: fact.machines for fact in facts if fact.machines},
    )


def _key(values: Mapping[str, Any], repeat: int, baseline: bool) -> tuple[str, int, bool]:
    return json.dumps(values, sort_keys=True, default=str), repeat, baseline


@dataclass(frozen=True)
class CostPredictor:
    """A cost model before it has seen measurements, for one experiment. See `analysis/predictor.py`."""

    documents: Mapping[int, Mapping[str, Any]]  # job specs by the index of their trial
    scaling: Scaling = "strong"
    device: str | None = None  # as the driver gives it; None: CPU slots
    machines: Mapping[int, int] = field(default_factory=dict)  # hosts of a trial's ranks, by its index; one where nothing is said
    slot_memory_bytes: int | None = None  # of the smallest slot that a trial ran on; None: not known
    _jobs: dict[int, JobShape | None] = field(default_factory=dict, init=False, repr=False, compare=False)  # those asked for so far

    def fit(self, measured: Sequence[MeasuredConfiguration]) -> FittedCostPredictor | None:
        """Fit the speeds of devices and links to measured steps. None: they do not suffice, or the device is unknown."""
        plans = evenly([plan for step in measured if (plan := self._plan(step)) is not None], MOST_FITTED)
        try:
            found = fit(plans, self._start({plan.setup.precision for plan in plans}))
        except CostModelError:
            return None
        widest = max(max(plan.ranks_by_node) for plan in plans)
        spans = any(len(plan.ranks_by_node) > 1 for plan in plans)
        if not spans:
            found = replace(found, speeds=with_assumed_network(found.speeds))
        return FittedCostPredictor(self, found, slots_per_node=widest, network_measured=spans)

    def state(self, trial: int) -> ModelState | None:
        """Count what a rank of this trial keeps of its model. None: the model's shape or a slot's memory is not known, or state is kept elsewhere too."""
        job = self.job(trial)
        memory = (job.spec.resources.memory_per_slot if job is not None else None) or self.slot_memory_bytes
        if job is None or memory is None:
            return None
        setup = setup_of(job.spec)
        if setup.cpu_offload or setup.degrees.servers:
            return None
        return ModelState(job.shape.parameters, state_bytes_per_parameter(setup), setup.optimizer, memory)

    def job(self, trial: int) -> JobShape | None:
        """Return the job of a trial as the cost model sees it; None: its shape is not known before it runs."""
        if trial not in self._jobs:
            self._jobs[trial] = self._parsed(trial)
        return self._jobs[trial]

    def _parsed(self, trial: int) -> JobShape | None:
        try:
            spec = JobSpec.model_validate(self.documents[trial])
        except (KeyError, ValidationError):
            return None
        shape = derived.known_shape(spec, NumberFormats(spec.precision, self.kernels))
        return None if shape is None or derived.searches_micro_batch(spec) else JobShape(spec, shape)

    @property
    def kernels(self) -> Kernels:
        return CPU if self.device is None else CUDA

    def _plan(self, step: MeasuredConfiguration) -> MeasuredPlan | None:
        job = self.job(step.trial)
        if job is None:
            return None
        hosts = min(step.world_size, self.machines.get(step.trial, 1))
        return MeasuredPlan(job.shape, setup_of(job.spec, step.world_size), step.step_seconds, over(step.world_size, hosts))

    def _start(self, precisions: set[Precision]) -> Speeds:
        return of_cpu_slots(precisions) if self.device is None else of_device(self.device, precisions)


@dataclass(frozen=True)
class JobShape:
    """A trial's job, with the shape of its model."""

    spec: JobSpec
    shape: ModelShape

    def on(self, ranks: int, scaling: Scaling) -> TrainingSetup | None:
        """Return how the job would be trained on `ranks` ranks; None: its model or its batch cannot be divided over them.

        Weak scaling gives each rank what it has now; strong scaling divides the batch as it is, into smaller micro-batches where it has to.
        """
        try:
            setup = setup_of(self.spec, ranks)
        except WorldSizeMismatchError:
            return None
        samples = self.samples(ranks, scaling)
        size = min(setup.micro_batch_size, int(samples // setup.degrees.data))
        return replace(setup, micro_batch_size=size, micro_batches=-(-int(samples) // size)) if size else None

    def assumed_sums(self, setup: TrainingSetup) -> list[str]:
        """Return how gradients are taken to be summed over replicas, in words, where the job leaves it to be measured."""
        if not self.spec.communication.is_auto or setup.degrees.replicate == 1:
            return []
        return [
            f"gradients are summed {ReductionChoice.asked_for(setup.communication).name}, and communication: auto may find a faster way"
        ]

    def samples(self, ranks: int, scaling: Scaling) -> float:
        """Return the global batch size on `ranks` ranks."""
        batch = derived.training_of(self.spec).global_batch_size
        return batch if scaling == "strong" else batch * ranks / self.spec.world_size


@dataclass(frozen=True)
class FittedCostPredictor:
    """A cost model whose speeds are chosen."""

    predictor: CostPredictor
    fit: FittedSpeeds
    slots_per_node: int  # ranks on one machine, as measured
    network_measured: bool

    def predict(self, trial: int, ranks: int) -> PredictedStep | None:
        """Predict a step of this trial's document on `ranks` ranks, batch as the experiment's kind of scaling says. None: there is no prediction."""
        job, scaling = self.predictor.job(trial), self.predictor.scaling
        setup = job.on(ranks, scaling) if job is not None else None
        if job is None or setup is None or setup.precision not in self.fit.speeds.flops_per_second:
            return None
        hosts = min(ranks, self.predictor.machines.get(trial, 1)) if ranks == job.spec.world_size else -(-ranks // self.slots_per_node)
        found = self.fit.speeds.predict(job.shape, setup, over(ranks, hosts))
        return PredictedStep(
            step_seconds=found.seconds,
            samples_per_second=job.samples(ranks, scaling) / found.seconds,
            assumptions="; ".join([self.assumptions(hosts), *job.assumed_sums(setup)]),
            peak_memory_bytes=float(found.memory.total),
        )

    def assumptions(self, hosts: int) -> str:
        """Return what a prediction for `hosts` machines rests on, in words."""
        found, batch = self.fit, "each rank keeps its batch" if self.predictor.scaling == "weak" else "the global batch stays as it is"
        on = "CPU slots" if self.predictor.device is None else self.predictor.device
        fitted = f"{on}, fitted to {found.trials} configurations measured here ({plural(len(found.fitted), 'parameter')}, at most {percent(found.worst_error)} off)"
        return "; ".join([fitted, *([self._network(hosts)] if hosts > 1 else []), batch, "memory is that of tensors"])

    def _network(self, hosts: int) -> str:
        assumed = self.fit.speeds.machines.between.bytes_per_second
        network = "as measured" if self.network_measured else f"{assumed / 1e9:.2g} GB/s, assumed and not measured"
        return f"{hosts} machines of {plural(self.slots_per_node, 'rank')} like those measured, the network between them {network}"


def with_assumed_network(speeds: Speeds) -> Speeds:
    """Return the speeds with a network between machines that is as assumed, but no faster than the links within one, which were measured."""
    within, between = speeds.machines.within, speeds.machines.between
    slower = Link(min(within.bytes_per_second, between.bytes_per_second), max(within.latency_seconds, between.latency_seconds))
    return replace(speeds, machines=replace(speeds.machines, between=slower))


def evenly(plans: Sequence[MeasuredPlan], most: int) -> list[MeasuredPlan]:
    """Return at most `most` of the plans, evenly apart, in their order."""
    return [plans[index * len(plans) // most] for index in range(most)] if len(plans) > most else list(plans)


def over(ranks: int, hosts: int) -> tuple[int, ...]:
    """Return the ranks on each of `hosts` machines, as evenly as possible."""
    share, left = divmod(ranks, hosts)
    return (*[share + 1] * left, *[share] * (hosts - left))
