"""A small network on made-up numbers that kills, stops or breaks itself where faults.json says so; once each, a file remembers.

It writes down what each process computes (`computed`: pid, step, micro-batch) and what each step leads to (`states`: pid, step, hash).

Hazard: `tests.faults.faulty_job` copies this into the job's folder, and only a rank can import it. Tests add lines to their copy, which
use its imports, RANK and GENERATION.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed import P2POp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from paceline.distributed.world_group import WorldGroup
from paceline.parallelism.mesh import local_tensor
from paceline.training.builtin import next_token_loss
from paceline.training.data.sampler import BatchSplit, Sampler
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.model import build
from paceline.training.models.gpt.stages import units
from paceline.training.saving import manifest, uncommitted
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Loss, Task

if TYPE_CHECKING:
    from tests.faults import Moment

FOLDER = Path(__file__).parent
BORN = Path(os.environ["PACELINE_RANK_FOLDER"])
RANK, GENERATION = int(BORN.name.removeprefix("rank")), int(BORN.parent.name.removeprefix("g"))
WIDTH = 32
CONTEXT = 16
NATIVE_SECONDS = 3600
RELEASE_TIMEOUT_SECONDS = 120.0
SLOW_BATCH_SECONDS = 0.05


class Planned(NamedTuple):
    """A `tests.faults.Fault`, as it stands in faults.json."""

    rank: int
    step: int
    kind: str
    moment: Moment
    micro_batch: int | None
    generation: int | None
    done: str

    @property
    def is_ours(self) -> bool:
        return self.rank == RANK and self.generation in (None, GENERATION)

    @property
    def mark(self) -> Path:
        """The file that remembers it."""
        return FOLDER / self.done


class Progress:
    """Where this process is in its work, and what is to happen to it there."""

    def __init__(self, places: Mapping[tuple[int, ...], tuple[int, int]], faults: Sequence[Planned]) -> None:
        self._places, self._faults = places, faults
        self.step = self.micro_batch = 0

    def come_to(self, indices: Tensor) -> None:
        """Step 0: outside of the job's own batches, as in a warm-up."""
        self.step, self.micro_batch = self._places.get(tuple(indices.tolist()), (0, 0))

    def due(self, moment: Moment | None, saved: int | None = None) -> Planned | None:
        """`saved`: the step that is being saved, perhaps behind others."""
        here = (fault for fault in self._faults if (fault.step, fault.moment) == (saved or self.step, moment))
        return next((fault for fault in here if fault.micro_batch in (None, self.micro_batch) and not fault.mark.exists()), None)

    def strike(self, moment: Moment | None, saved: int | None = None) -> None:
        if fault := self.due(moment, saved):
            fault.mark.write_text(str(os.getpid()))
            break_by(fault.kind, fault.mark)


def break_by(kind: str, mark: Path) -> None:
    match kind:
        case "exception":
            raise KeyError("a fault on order")
        case "hold":
            wait_for(mark.with_suffix(".go"))
        case "loop":
            while True:
                pass
        case "native":  # unlike time.sleep it keeps the interpreter's lock
            ctypes.PyDLL(None).sleep(NATIVE_SECONDS)
        case "mismatch":  # nobody else comes to this broadcast
            torch.distributed.broadcast(torch.zeros(3), src=0)
        case _:
            os.kill(os.getpid(), signal.Signals[kind])


def wait_for(file: Path) -> None:
    """Of a test that has died nobody else would end this process."""
    deadline = time.monotonic() + RELEASE_TIMEOUT_SECONDS
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.01)


def note(file: str, *words: object) -> None:
    with (FOLDER / file).open("a") as notes:
        notes.write(" ".join(map(str, (os.getpid(), *words))) + "\n")


class Table:
    """Rows of numbers (samples, WIDTH), a little different each time, or of tokens (samples, CONTEXT + 1)."""

    def __init__(self, rows: Tensor, progress: Progress) -> None:
        self._rows, self._progress = rows, progress

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        self._progress.come_to(indices)
        self._progress.strike("data")
        if (FOLDER / "slow").exists():
            time.sleep(SLOW_BATCH_SECONDS)
        rows = self._rows[indices]
        return (rows + 0.01 * torch.randn(rows.shape, generator=generator) if rows.is_floating_point() else rows,)


def task(spec: JobSpec) -> Task:
    """With batch norm."""
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Linear(64, WIDTH))
    return faulty(spec, model, torch.randn(samples(spec), WIDTH, generator=torch.Generator().manual_seed(0)), distance_to_the_next)


def gpt(spec: JobSpec) -> Task:
    """With dropout."""
    model = build(GptModel(kind="gpt", layers=1, heads=2, dim=16, context=CONTEXT, dropout=0.1))
    tokens = torch.randint(0, 256, (samples(spec), CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    return replace(faulty(spec, model, tokens, next_token_loss), units=units)


def distance_to_the_next(model: nn.Module, batch: Batch) -> Loss:
    (inputs,) = batch
    return (model(inputs) - inputs.roll(1, dims=1)).square().mean(), {}


def faulty(spec: JobSpec, model: nn.Module, rows: Tensor, loss: Callable[[nn.Module, Batch], Loss]) -> Task:
    progress = Progress(places(spec), planned())
    watch_saves(progress)
    watch_updates(progress, model)
    watch_transfers(progress)

    def striking(model: nn.Module, batch: Batch) -> Loss:
        progress.strike("loss")
        note("computed", progress.step, progress.micro_batch)
        value, _ = loss(model, batch)
        value.register_hook(lambda _: progress.strike("backward"))  # type: ignore[no-untyped-call]
        return value, {}

    return Task(model=model, train=Table(rows, progress), loss=striking)


def planned() -> list[Planned]:
    """For this process."""
    faults = [Planned(**fault) for fault in json.loads((FOLDER / "faults.json").read_text())]
    return [fault for fault in faults if fault.is_ours]


def samples(spec: JobSpec) -> int:
    """Each is used once, so that a batch tells its step."""
    training = derived.training_of(spec)
    assert training.steps is not None
    return training.steps * training.global_batch_size


def places(spec: JobSpec) -> dict[tuple[int, ...], tuple[int, int]]:
    """(step, micro-batch) of each batch, by the numbers of its samples."""
    training, size = derived.training_of(spec), derived.micro_batch_size(spec)
    sampler = Sampler(samples(spec), training.seed, BatchSplit(training.global_batch_size, size))
    steps = range(1, samples(spec) // training.global_batch_size + 1)
    return {
        tuple(sampler.micro_batch(step, index).tolist()): (step, index) for step in steps for index in range(derived.micro_batches(spec))
    }


def watch_saves(progress: Progress) -> None:
    strike_around(progress, FileSystemWriter, "set_up_storage_writer", "plan")
    strike_around(progress, FileSystemWriter, "write_data", "write")
    strike_around(progress, uncommitted, "describe", "hash")
    strike_around(progress, manifest, "publish", "publish", "published")


def strike_around(progress: Progress, owner: object, name: str, before: Moment, after: Moment | None = None) -> None:
    call = getattr(owner, name)

    def struck(*arguments: Any) -> Any:
        step = step_in(arguments[0])
        progress.strike(before, step)
        answer = call(*arguments)
        progress.strike(after, step)
        return answer

    setattr(owner, name, struck)


def step_in(place: FileSystemWriter | Path) -> int:
    """What is saved there: a checkpoint's folder, or a file of one."""
    path = Path(place.checkpoint_id) if isinstance(place, FileSystemWriter) else place
    name = manifest.NAME.fullmatch(path.name) or manifest.NAME.fullmatch(path.parent.name)
    assert name is not None, place
    return int(name["step"])


def watch_updates(progress: Progress, model: nn.Module) -> None:
    def before(*_: object) -> None:
        progress.strike("update")

    built = weakref.ref(model)  # one in parts is built anew for each generation

    def after(*_: object) -> None:
        if progress.step and (model := built()) is not None:
            note("states", progress.step, digest(model))

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode() + local_tensor(value).contiguous().numpy().tobytes())
    return found.hexdigest()


def watch_transfers(progress: Progress) -> None:
    group: Any = WorldGroup
    start_exchange, start_sum = group.start_exchange, group.start_sum

    def striking_exchange(self: WorldGroup, operations: list[P2POp], then: Callable[[], list[P2POp]], **options: Any) -> Any:
        def striking_then() -> list[P2POp]:
            operations = then()
            progress.strike("gather")
            return operations

        progress.strike("exchange")
        return start_exchange(self, operations, striking_then, **options)

    def striking_sum(self: WorldGroup, values: Tensor) -> Callable[[], Tensor]:
        if not progress.due("news"):
            return start_sum(self, values)  # type: ignore[no-any-return]

        def finish() -> Tensor:
            progress.strike("news")
            return start_sum(self, values)()  # type: ignore[no-any-return]

        return finish

    group.start_exchange, group.start_sum = striking_exchange, striking_sum
