"""How a generation's gradients are summed over its replicas: as the job says, or as is found best while it trains. `communication: auto` leaves all of it
open; any job of DDP that does not say `bucket_mb` leaves open the size of its buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import LOSSY, CompressionOptions
from paceline.distributed.compression.remainder import WithRemainder
from paceline.distributed.process_group import Group
from paceline.distributed.reduction import Reduction
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.parallelism.communication.choices import COMPRESSIONS, TORCHS_BUCKET_MB, ReductionChoice, bucket_sizes, choices
from paceline.parallelism.communication.chosen_reducer import ChosenReducer
from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.communication.pieces import PieceMaker, plain_names
from paceline.parallelism.communication.probes import ELEMENT_BYTES, probe
from paceline.parallelism.communication.reducers import BackendReducer, BackgroundReducer, Reducer
from paceline.parallelism.communication.sum_cost import GradientBytes, Links, predicted_sums
from paceline.parallelism.communication.trial import CommunicationTrial, Machines, Verdict
from paceline.training.errors import InvalidInputError
from paceline.training.gradients.names import NAMES_IN_ERRORS
from paceline.training.link import RankPlace
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport, TrainState

MIB = 1 << 20


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
    """Return what sums the gradients of this generation over its replicas. Collective where there is something to choose.

    Raises InvalidInputError for a pattern of `communication.exclude` that no parameter matches.
    """
    require_matches(spec.communication.exclude, state)
    made = _Reducers(derived.communication_options(spec), state, group)
    if group.world_size == 1 or not (_chooses_sums(spec, group) or derived.leaves_buckets_open(spec)):
        return FixedSums(made.of(made.options))
    state.communication = trial = agreed_trial(spec, world, state, group)
    if not trial.has_choice:
        return FixedSums(made.of(made.options))
    return ChosenSums(ChosenReducer(trial.current, made.by, made.flushing), trial, group)


def require_matches(exclude: Sequence[str], state: TrainState) -> None:
    """Raise InvalidInputError for a pattern that no parameter of the model, which is not in parts yet, matches: its parameters would be compressed."""
    names = [name for name, _ in plain_names(state.model)] if exclude else []
    for pattern in exclude:
        if not any(fnmatchcase(name, pattern) for name in names):
            some = ", ".join(names[:NAMES_IN_ERRORS]) or "none"
            raise InvalidInputError(
                f"communication.exclude: no parameter matches {pattern!r}; of the {len(names)} that the model has: {some}; correct the pattern, or leave it out"
            )


def _chooses_sums(spec: JobSpec, group: Group) -> bool:
    """Whether there is a choice between ways to sum: the job leaves it open, and this world has several replicas and more than the backend."""
    return spec.communication.is_auto and group.reduction_groups is not None


@dataclass(frozen=True)
class _Reducers:
    """Makes reducers of one generation."""

    options: CommunicationOptions
    state: TrainState
    group: Group

    def by(self, choice: ReductionChoice) -> Reducer:
        return self.of(choice.of(self.options))

    def of(self, options: CommunicationOptions) -> Reducer:
        groups = self.group.reduction_groups
        if groups is None or options.is_default:  # None: this world has one replica, or its backend sums by itself
            return BackendReducer(self.group, options.bucket_mb)
        return self._in_background(reduction_for(options.algorithm, options.compression, groups), options)

    def flushing(self, choice: ReductionChoice) -> Reducer:
        groups = self.group.reduction_groups
        if groups is None:  # of another job, whose checkpoint this one began with: there is nothing to send it by
            return self.by(choice)
        return self._in_background(WithRemainder(reduction_for(choice.algorithm, CompressionOptions(), groups)), choice.of(self.options))

    def _in_background(self, reduction: Reduction, options: CommunicationOptions) -> Reducer:
        shards = self.group.axis_groups.get("shard")
        suffix = f"@{shards.rank}/{shards.size}" if shards else ""
        model, state, exclude = self.state.model, self.state, options.exclude
        pieces, step = lambda: PieceMaker(model, exclude, suffix), lambda: state.step + 1
        return BackgroundReducer(self.group, reduction, pieces, step, options.bucket_mb)


# -- what is chosen by measurement


def agreed_trial(spec: JobSpec, world: RankPlace, state: TrainState, group: Group) -> CommunicationTrial:
    """Return what the ranks of an earlier generation have found out, or begin to try. The links are probed where there are several ways to sum, and again
    where the replicas have come to other machines. Collective."""
    everyones: list[tuple[CommunicationTrial | None, Sequence[float]]] = group.all_gather_object((state.communication, _sizes(spec, state)))
    kept = next((trial for trial, _ in everyones if trial is not None), None)
    machines = _machines(world, group)
    if kept is not None and kept.machines == machines:
        kept.join_generation()
        return kept
    sums, links = _ways(spec, world, state, group)
    dense_steps = spec.communication.dense_steps if any(each.is_lossy for each in sums) else 0
    _, sizes = everyones[0]  # a rank that has frozen a part of its model since may count otherwise
    trial = CommunicationTrial(sums, dense_steps, machines, links, sizes)
    if kept is not None:
        trial.inherit(kept)
    return trial


def _machines(world: RankPlace, group: Group) -> Machines:
    """Return the machines of each group of replicas, the same on every rank. The order of ranks on them does not matter. Collective."""
    groups = group.reduction_groups
    replicas = groups.replicas.ranks if groups else tuple(range(group.world_size))
    everyones: list[tuple[str, tuple[int, ...]]] = group.all_gather_object((world.machine, replicas))
    found = {ranks: sorted(everyones[rank][0] for rank in ranks) for _, ranks in everyones}
    return sorted(found.values())


def _ways(spec: JobSpec, world: RankPlace, state: TrainState, group: Group) -> tuple[Mapping[ReductionChoice, float], Links]:
    """Return the ways to sum that the job leaves open, with the predicted seconds of a step's sums, and the links. Collective."""
    groups = group.reduction_groups
    if groups is not None and spec.communication.is_auto:
        return _predicted(spec, world, state, group, groups)
    asked = ReductionChoice.asked_for(derived.communication_options(spec))
    return {asked.done_with(frozenset.union(*had_by_ranks(group))): 0.0}, Links()


def _sizes(spec: JobSpec, state: TrainState) -> tuple[float, ...]:
    """Return the sizes of DDP's buckets, in MiB, to try beside torch's own; none where the job has no buckets, or says their size."""
    trained = sum(parameter.numel() for parameter in state.model.parameters() if parameter.requires_grad)
    return bucket_sizes(ELEMENT_BYTES * trained / MIB) if derived.leaves_buckets_open(spec) else ()


def _predicted(
    spec: JobSpec, world: RankPlace, state: TrainState, group: Group, groups: ReductionGroups
) -> tuple[dict[ReductionChoice, float], Links]:
    """Probe the links, and return the seconds that a step's sums will take by each choice. Collective."""
    asked, options = spec.communication, derived.communication_options(spec)
    kinds = tuple(kind for kind in COMPRESSIONS if kind not in LOSSY or (asked.lossy and spec.precision != "fp16"))
    had = had_by_ranks(group)
    by_name = choices(asked.algorithm, asked.compression, frozenset.intersection(*had), kinds)
    found = tuple(each.done_with(frozenset.union(*had)) for each in by_name)
    gradients = gradient_bytes(state, options, shards=group.axis_groups["shard"].size if "shard" in group.axis_groups else 1)
    machines = len(set(group.all_gather_object(world.machine)))
    largest = gradients.compressible + gradients.whole
    costs, links = probe(group, groups, found, options.compression, state.device, largest=largest, machines=machines)
    return predicted_sums(costs, gradients), links


def had_by_ranks(group: Group) -> list[frozenset[Algorithm]]:
    """Return the algorithms that each rank has: replicas of different shards may lie differently on the machines. Collective."""
    groups = group.reduction_groups
    own: set[Algorithm] = {"backend"}
    if groups is not None and groups.ring:
        own.add("ring")
    if groups is not None and groups.local and groups.peers:
        own.add("hierarchical")
    return group.all_gather_object(frozenset(own))


def gradient_bytes(state: TrainState, options: CommunicationOptions, shards: int) -> GradientBytes:
    """Return the bytes of this rank's gradients, before or after the model is sharded."""
    trained = [parameter for parameter in state.model.parameters() if parameter.requires_grad]
    pieces = PieceMaker(state.model, options.exclude).pieces(trained)
    compressible = ELEMENT_BYTES * sum(piece.length for piece in pieces if piece.compressible) // shards
    whole = ELEMENT_BYTES * sum(piece.length for piece in pieces if not piece.compressible) // shards
    bucket = MIB * (TORCHS_BUCKET_MB if options.bucket_mb is None else options.bucket_mb)
    return GradientBytes(compressible, whole, buckets=1 if shards > 1 else 1 + int((compressible + whole) / bucket))
