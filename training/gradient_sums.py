"""How a generation's gradients are summed over its replicas: as the job says, or as is found best while it trains (`communication: auto`)."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.distributed.collectives.options import ALGORITHMS, Algorithm
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import LOSSY, CompressionOptions
from paceline.distributed.compression.remainder import WithRemainder
from paceline.distributed.process_group import Group
from paceline.distributed.reduction import Reduction
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.parallelism.communication.choices import BUCKET_SIZES_MB, COMPRESSIONS, ReductionChoice, choices
from paceline.parallelism.communication.chosen_reducer import ChosenReducer
from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.communication.pieces import PieceMaker
from paceline.parallelism.communication.probes import ELEMENT_BYTES, probe
from paceline.parallelism.communication.reducers import BackendReducer, BackgroundReducer, Reducer
from paceline.parallelism.communication.sum_cost import GradientBytes, predicted_sums
from paceline.parallelism.communication.trial import CommunicationTrial, Verdict
from paceline.training.link import RankPlace
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport, TrainState

#: DDP's buckets, where the job does not say: torch's own.
BUCKET_BYTES = 25 << 20


class FixedSums:
    """Gradients are summed as the job says."""

    def __init__(self, reducer: Reducer) -> None:
        self.reducer = reducer

    def after_step(self, report: StepReport) -> Verdict | None:
        """Return None: nothing is to be decided."""


class ChosenSums:
    """Gradients are summed as is found best, by steps of the job itself."""

    def __init__(self, reducer: ChosenReducer, trial: CommunicationTrial, group: Group) -> None:
        self.reducer, self._trial, self._group = reducer, trial, group

    def after_step(self, report: StepReport) -> Verdict | None:
        """Count a committed step; now and then, change the way of the next ones, and return why. Collective."""
        trial = self._trial
        if not trial.count(report.step, report.seconds, report.parts["communication_seconds"], report.loss):
            return None
        verdict = trial.conclude(self._group.all_gather_object(trial.times()))
        self.reducer.use(trial.current)
        return verdict


def gradient_sums(spec: JobSpec, world: RankPlace, state: TrainState, group: Group) -> FixedSums | ChosenSums:
    """Return what sums the gradients of this generation over its replicas. Collective where there is something to choose."""
    options, groups = derived.communication_options(spec), group.reduction_groups
    if groups is None or (options.is_default and not spec.communication.is_auto):  # None: this world has one replica
        return FixedSums(BackendReducer(group, options.bucket_mb))
    made = _Reducers(options, state, group, groups)
    if not spec.communication.is_auto:
        return FixedSums(made.of(options))
    state.communication = trial = agreed_trial(spec, world, state, group, groups)
    return ChosenSums(ChosenReducer(trial.current, made.by, made.flushing), trial, group)


@dataclass(frozen=True)
class _Reducers:
    """Makes reducers of one generation."""

    options: CommunicationOptions
    state: TrainState
    group: Group
    groups: ReductionGroups

    def by(self, choice: ReductionChoice) -> Reducer:
        return self.of(choice.of(self.options))

    def of(self, options: CommunicationOptions) -> Reducer:
        if options.is_default:
            return BackendReducer(self.group, options.bucket_mb)
        return self._in_background(reduction_for(options.algorithm, options.compression, self.groups), options)

    def flushing(self, choice: ReductionChoice) -> Reducer:
        exact = reduction_for(choice.algorithm, CompressionOptions(), self.groups)
        return self._in_background(WithRemainder(exact), choice.of(self.options))

    def _in_background(self, reduction: Reduction, options: CommunicationOptions) -> Reducer:
        shards = self.group.axis_groups.get("shard")
        suffix = f"@{shards.rank}/{shards.size}" if shards else ""
        model, state, exclude = self.state.model, self.state, options.exclude
        pieces, step = lambda: PieceMaker(model, exclude, suffix), lambda: state.step + 1
        return BackgroundReducer(self.group, reduction, pieces, step, options.bucket_mb)


# -- auto


def agreed_trial(spec: JobSpec, world: RankPlace, state: TrainState, group: Group, groups: ReductionGroups) -> CommunicationTrial:
    """Return what the ranks of an earlier generation have found out, or probe the links and begin to try. Collective."""
    kept: CommunicationTrial | None = next((each for each in group.all_gather_object(state.communication) if each is not None), None)
    if kept is None:
        return _begin(spec, world, state, group, groups)
    kept.join_generation(groups.replicas.size)
    return kept


def _begin(spec: JobSpec, world: RankPlace, state: TrainState, group: Group, groups: ReductionGroups) -> CommunicationTrial:
    asked, options = spec.communication, derived.communication_options(spec)
    kinds = tuple(kind for kind in COMPRESSIONS if kind not in LOSSY or (asked.lossy and spec.precision != "fp16"))
    found = choices(asked.algorithm, asked.compression, offered_by(group, groups), kinds)
    gradients = gradient_bytes(state, options, shards=group.axis_groups["shard"].size if "shard" in group.axis_groups else 1)
    largest = gradients.compressible + gradients.whole
    machines = len(set(group.all_gather_object(world.machine)))
    costs, links = probe(group, groups, found, options.compression, state.device, largest=largest, machines=machines)
    dense_steps = options.compression.dense_steps if any(each.is_lossy for each in found) else 0
    has_buckets = spec.parallelism.strategy == "ddp" and asked.bucket_mb is None
    bucket_sizes = [
        size for size in BUCKET_SIZES_MB if has_buckets and largest > min(size * (1 << 20), BUCKET_BYTES)
    ]  # else they are the same
    return CommunicationTrial(predicted_sums(costs, gradients), dense_steps, groups.replicas.size, links, bucket_sizes)


def offered_by(group: Group, groups: ReductionGroups) -> tuple[Algorithm, ...]:
    """Return the algorithms that all ranks have, whose replicas may lie differently on the machines. Collective."""
    own = ("backend", *(("ring",) if groups.ring else ()), *(("hierarchical",) if groups.local and groups.peers else ()))
    everyones = group.all_gather_object(own)
    return tuple(each for each in ALGORITHMS if all(each in of_rank for of_rank in everyones))


def gradient_bytes(state: TrainState, options: CommunicationOptions, shards: int) -> GradientBytes:
    """Return the bytes of this rank's gradients, before or after the model is sharded."""
    trained = [parameter for parameter in state.model.parameters() if parameter.requires_grad]
    pieces = PieceMaker(state.model, options.exclude).pieces(trained)
    compressible = ELEMENT_BYTES * sum(piece.length for piece in pieces if piece.compressible) // shards
    whole = ELEMENT_BYTES * sum(piece.length for piece in pieces if not piece.compressible) // shards
    bucket = BUCKET_BYTES if options.bucket_mb is None else options.bucket_mb * (1 << 20)
    return GradientBytes(compressible, whole, buckets=1 if shards > 1 else 1 + int((compressible + whole) / bucket))
