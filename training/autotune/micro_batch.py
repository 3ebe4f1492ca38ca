"""`micro_batch_size: auto`: the largest micro-batch that fits every rank's memory, found by trying real steps before the first one.

What a step needs grows nearly in a straight line with the samples of a micro-batch, so the line through the two largest sizes that were tried
tells where to look next; once a try has run out of memory, the middle of what is left is tried. All ranks try the same sizes and go by the rank that needs most. Nothing of a try stays but its
figures: parameters are not updated, and random numbers belong to steps.

What is found is told to the coordinator, which writes it into the job's spec: no later process of the job searches again. The event is older
than the first checkpoint, so that a restored job knows.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import psutil
import torch
from torch import nn

from paceline.distributed.process_group import Group
from paceline.parallelism.plan import Coordinates
from paceline.parallelism.planning.auto import RESERVE
from paceline.parallelism.words import size as in_words
from paceline.training.autotune.memory_peak import peak_of
from paceline.training.data.feed import open_feed
from paceline.training.errors import InvalidInputError
from paceline.training.link import Joined, RankPlace
from paceline.training.planning.auto import with_micro_batch
from paceline.training.reporting.failures import kind_of, runs_out_of_memory
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.saving.checkpoint_directory import CheckpointDirectory
from paceline.training.saving.shards import put_tensors, tensors_of
from paceline.training.saving.storage import CheckpointStorage
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import TrainState
from paceline.training.steps.step import LocalStepRunner
from paceline.training.steps.stepping import StepsFrom
from paceline.training.task import Stream

#: In the job's checkpoint directory while a size is being tried: a rank that is killed for its memory can note nothing any more.
ATTEMPT = ".micro-batch"


@dataclass
class MicroBatchSearch:
    """Chooses the next micro-batch size to try, from the measured peaks. Pure; sizes ascend, memory is in bytes."""

    sizes: Sequence[int]
    budget: int  # nothing is tried that is expected to take more
    peaks: dict[int, int] = field(default_factory=dict)  # by size

    def __post_init__(self) -> None:
        self.limit = int((1 - RESERVE) * self.budget)
        self._low, self._high = 0, len(self.sizes)  # below the one everything fits, from the other on nothing does
        self._ran_out = False

    @property
    def next(self) -> int | None:
        """Size to try next, or None when the search is over."""
        left = [size for size in self.sizes[self._low : self._high] if self._expected(size) <= self.budget]
        if not left:
            return None
        if self._ran_out:
            return left[len(left) // 2]
        promising = [size for size in left if self._expected(size) <= self.limit]
        return promising[-1] if promising and len(self.peaks) > 1 else left[0]

    def note(self, size: int, peak: int | None) -> None:
        """Record the peak bytes of a trial of `size`. A peak of None means out of memory; from then on the line through the peaks is not
        trusted."""
        self._ran_out = self._ran_out or peak is None
        if peak is not None:
            self.peaks[size] = peak
        if peak is None or peak > self.limit:
            self._high = self.sizes.index(size)
        else:
            self._low = self.sizes.index(size) + 1

    @property
    def found(self) -> int | None:
        return self.sizes[self._low - 1] if self._low else None

    def _expected(self, size: int) -> float:
        """By the line through the two largest sizes that were tried; nothing is expected of less."""
        if len(self.peaks) < 2:
            return 0.0
        (a, of_a), (b, of_b) = sorted(self.peaks.items())[-2:]
        return of_b + (of_b - of_a) / (b - a) * (size - b)


def sizes_to_try(global_batch_size: int, data_ranks: int, shards: int | None = None) -> list[int]:
    """Return, ascending, the sizes with which all data ranks have equally many micro-batches, or nearly.

    `shards`: of a stream, each micro-batch of which reads some of its own; where there are too few for any size, the largest is returned.
    """
    sizes = {-(-global_batch_size // count) for count in range(data_ranks, global_batch_size + 1, data_ranks)}
    ascending = sorted(size for size in sizes if -(-global_batch_size // size) >= data_ranks)
    return [size for size in ascending if shards is None or -(-global_batch_size // size) <= shards] or ascending[-1:]


def in_turn(sizes: Sequence[int], global_batch_size: int, *, deadly: int | None, single_last: bool) -> list[Sequence[int]]:
    """Return the sizes as lists that are tried one after the other, until a size of one fits.

    `deadly`: the size whose attempt was the end of an earlier process; it and larger ones are left out, unless it is the smallest: then more than
    memory may have ended it. `single_last`: sizes with which some micro-batch is a single sample come last.
    """
    single = [size for size in sizes if single_last and (global_batch_size % size or size) == 1]
    lists = [[size for size in sizes if size not in single], single]
    return [[size for size in each if deadly is None or size < deadly] or each for each in lists if each]


def resolve_micro_batch(
    checkpoints: CheckpointDirectory,
    world: RankPlace,
    state: TrainState,
    steps_from: StepsFrom,
    coordinates: Coordinates,
    telemetry: Telemetry,
) -> JobSpec:
    """Return the spec with the micro-batch size that all ranks use from now on. A rank that joins a gang takes over the size that the
    gang has found."""
    spec = checkpoints.spec
    known = [
        each
        for each in checkpoints.group.all_gather_object(None if derived.searches_micro_batch(spec) else derived.micro_batch_size(spec))
        if each is not None
    ]
    found = (
        known[0]
        if known
        else search(Trials(checkpoints, state, steps_from, coordinates), budget_of(spec, world, state, checkpoints.group), telemetry)
    )
    if not derived.searches_micro_batch(spec):
        return spec
    resolved = with_micro_batch(spec, found)
    state.feed = open_feed(state.task.train, resolved)
    return resolved


def budget_of(spec: JobSpec, world: RankPlace, state: TrainState, group: Group) -> int:
    """Return the least memory of any rank, in bytes: the spec's limit, or the device's memory."""
    own: int | None = spec.resources.memory_per_slot
    if own is None and state.device.type == "cuda":
        own = torch.cuda.get_device_properties(state.device).total_memory
    least: int = min(group.all_gather_object(own or psutil.virtual_memory().total // world.local_world_size))
    return least


def search(trials: Trials, budget: int, telemetry: Telemetry) -> int:
    """Search for the largest micro-batch that fits. Raises InvalidInputError where not even the smallest does."""
    state = trials.state
    telemetry.link.send(Joined(step=state.step, total_steps=state.total_steps))  # a searching rank has met the others and may take its time
    telemetry.activity.enter("search", state.step)
    with trials:
        for sizes in trials.sizes():
            search = MicroBatchSearch(sizes, budget)
            while (size := search.next) is not None:
                peak = trials.run(size)
                search.note(size, peak)
                telemetry.log(
                    f"micro-batches of {size} take {'more than there is' if peak is None else in_words(peak)} of {in_words(search.limit)}"
                )
            if search.found is not None:
                break
    telemetry.activity.enter("rest", state.step)
    if search.found is None:
        raise too_large(search)
    peak = search.peaks[search.found]
    telemetry.event("micro_batch_found", size=search.found, peak_bytes=peak, limit_bytes=search.limit, tried=tried(search.peaks))
    return search.found


def tried(peaks: Mapping[int, int]) -> dict[str, int]:
    """Return the peak bytes by size, with keys for JSON."""
    return {str(size): peak for size, peak in sorted(peaks.items())}


def too_large(search: MicroBatchSearch) -> InvalidInputError:
    smallest = search.sizes[0]
    needs = in_words(search.peaks[smallest]) if smallest in search.peaks else "more than there is"
    return InvalidInputError(
        f"micro_batch_size=auto: micro-batches of {smallest} already take {needs}, and {in_words(search.limit)} may be used of "
        f"{in_words(search.budget)}; use slots with more memory, activation checkpointing, strategy fsdp on more slots, or a smaller model"
    )


class Trials:
    """Steps that change nothing, one for each size. Within the block the optimizer has its state, as from the second step on."""

    def __init__(self, checkpoints: CheckpointDirectory, state: TrainState, steps_from: StepsFrom, coordinates: Coordinates) -> None:
        self.checkpoints, self.state, self.coordinates = checkpoints, state, coordinates
        self._steps_from = steps_from
        self._storage = checkpoints.storage

    def __enter__(self) -> None:
        self._fresh = not self.state.optimizer.state
        if self._fresh:
            put_tensors(self.state, tensors_of(self.state))  # makes it by a step of nothing

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._fresh:
            self.state.optimizer.state.clear()
        group = self.checkpoints.group
        # A lost peer may have been killed for its memory.
        too_much = error is not None and kind_of(error, group.world_size) in ("out_of_memory", "peer_lost")
        if not too_much and group.rank == 0:
            self._storage.remove_note(ATTEMPT)

    def sizes(self) -> list[Sequence[int]]:
        """Return the sizes to try, in turn: those below the size whose attempt ended an earlier process."""
        spec, task = self.checkpoints.spec, self.state.task
        most = max(derived.data_ranks(spec, spec.resources.most_ranks), self.coordinates.degrees.data)
        deadly = self.checkpoints.group.all_gather_object(read_attempt(self._storage))[0]
        batch = derived.training_of(spec).global_batch_size
        sizes = sizes_to_try(batch, most, task.train.shards if isinstance(task.train, Stream) else None)
        return in_turn(sizes, batch, deadly=deadly, single_last=has_batch_norm(task.model))

    def run(self, size: int) -> int | None:
        """Return the bytes that a step takes on the fullest rank, or None where a rank ran out of memory."""
        if self.checkpoints.group.rank == 0:
            self._storage.write_note(ATTEMPT, str(size).encode())
        step_runner = self._step_runner(size)
        step_runner.fetch(self.state.step + 1, 0)  # data that are read when they are first asked for are no part of the step
        self.state.begin_step()
        peak = peak_of(
            self.state.task.model,
            self.state.optimizer,
            self.state.device,
            lambda: self._step(step_runner),
            step_runner.wrapped.exchange_buffer_bytes(step_runner.assignment.max_per_rank),
        )
        peaks = self.checkpoints.group.all_gather_object(peak if self._worked else None)
        self.state.rewind()
        self.state.partial = None
        step_runner.wrapped.release_memory()
        return None if None in peaks else max(peaks)

    def _step_runner(self, size: int) -> LocalStepRunner:
        spec = with_micro_batch(self.checkpoints.spec, size)
        self.state.feed = open_feed(self.state.task.train, spec)
        step_runner = self._steps_from(spec, self.coordinates.assignment(derived.micro_batches(spec)))
        assert isinstance(step_runner, LocalStepRunner), "specs with a pipeline are not to be searched for"
        return step_runner

    def _step(self, step_runner: LocalStepRunner) -> None:
        """Up to the exchange each rank is on its own, so that one which runs out of memory can say so; not where all compute in lockstep."""
        self._worked = succeeds(lambda: self._passes(step_runner), catch=not step_runner.wrapped.has_collective_forward)
        if all(self.checkpoints.group.all_gather_object(self._worked)):
            step_runner.wrapped.finish_step()

    def _passes(self, step_runner: LocalStepRunner) -> None:
        assignment, wrapped, step = step_runner.assignment, step_runner.wrapped, self.state.step + 1
        own = (
            [*assignment.own, *[0] * (assignment.max_per_rank - len(assignment.own))] if wrapped.has_collective_forward else assignment.own
        )
        wrapped.begin_step(assignment, {})
        for index in own:
            with wrapped.accumulate(index, final=False):
                step_runner.forward(index, step_runner.fetch(step, index)).backward()  # type: ignore[no-untyped-call]


def succeeds(work: Callable[[], None], *, catch: bool) -> bool:
    """Run `work`. Returns False if memory ran out, with the memory given back; raises any other error."""
    try:
        work()
    except Exception as error:
        if not catch or not runs_out_of_memory(error, str(error)):
            raise
    else:
        return True
    gc.collect()  # the traceback is gone, and with it the graph
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False


def has_batch_norm(model: nn.Module) -> bool:
    """Whether the model may refuse a micro-batch of a single sample, which has no variance."""
    return any(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm) for module in model.modules())


def read_attempt(storage: CheckpointStorage) -> int | None:
    note = storage.read_note(ATTEMPT)
    return None if note is None else int(note)
