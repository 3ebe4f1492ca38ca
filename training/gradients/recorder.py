"""Records a rank's own gradients at the steps that the job's spec chooses, as artifacts in the rank's folder."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paceline.distributed.process_group import Group
from paceline.monitoring.artifacts import MAX_ARTIFACT_BYTES, ArtifactKind, RankArtifact, leave_note, sha256_of
from paceline.monitoring.files import write_durably
from paceline.monitoring.gradient_records import ParameterRecord, RecordedGradients, compress
from paceline.parallelism.mesh import local_tensor
from paceline.parallelism.wrapped import Prepared
from paceline.training.errors import InvalidInputError
from paceline.training.gradients.names import NAMES_IN_ERRORS, matching, patterns_in_use, trainable_parameters
from paceline.training.gradients.statistics import PendingStatistics, histogram_edges, measure
from paceline.training.optim.bad_loss import BadLossError
from paceline.training.schema.gradients import Gradients
from paceline.training.state import TrainState


class GradientRecording(Protocol):
    """Looks at the gradients of steps."""

    def recording(self, prepared: Prepared, step: int) -> AbstractContextManager[None]:
        """Return the context in which `prepared` runs `step`."""
        ...


class NoRecording:
    """Records nothing: the job does not ask for it."""

    def recording(self, prepared: Prepared, step: int) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


@dataclass(frozen=True)
class _Seen:
    pending: PendingStatistics
    shape: tuple[int, ...]
    sharded: bool
    snapshot: Tensor | None

    def record(self, name: str) -> ParameterRecord:
        found = self.pending.read()
        return ParameterRecord(
            name=name,
            shape=self.shape,
            sharded=self.sharded,
            elements=found.elements,
            norm=None if found.nans or found.infs else found.norm,
            zeros=found.zeros,
            nans=found.nans,
            infs=found.infs,
            histogram=found.histogram,
        )


class GradientRecorder:
    """Records one rank's gradients in one generation. It measures while the step runs, and writes once the step is over.

    `folder`: of the rank's artifacts. `leave_step`: called before files are written.
    """

    def __init__(
        self, gradients: Gradients, parameters: dict[nn.Parameter, str], state: TrainState, folder: Path, leave_step: Callable[[], None]
    ) -> None:
        self._gradients, self._parameters, self._state = gradients, parameters, state
        self._folder, self._leave_step = folder, leave_step
        self._edges = histogram_edges(gradients.bins)
        self._edges_on_device = torch.tensor(self._edges, dtype=torch.float32, device=state.device)
        self._seen: dict[str, _Seen] = {}

    @contextlib.contextmanager
    def recording(self, prepared: Prepared, step: int) -> Iterator[None]:
        """Record `step` if it is chosen, also where its loss is bad. A step that breaks off otherwise is not recorded: it is done again."""
        if not self._gradients.includes(step):
            yield
            return
        self._seen.clear()
        prepared.observe_gradient = self._see
        try:
            yield
        except BadLossError:
            self._leave_record(step)
            raise
        finally:
            prepared.observe_gradient = None
        self._leave_record(step)

    @torch.no_grad()
    def _see(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        """Measure a gradient, without the loss scale of fp16, on its device."""
        name = self._parameters.get(parameter)
        if name is None:
            return
        values = local_tensor(gradient.detach())
        if values.is_sparse:  # of nn.Embedding(sparse=True)
            values = values.to_dense()
        if self._state.scale.value != 1.0:
            values = values / self._state.scale.value
        edges = self._edges_on_device.to(values.device)  # of gradients on the host, with parallelism.cpu_offload
        copy = values.to("cpu", copy=True) if self._gradients.snapshots else None
        self._seen[name] = _Seen(measure(values, edges), tuple(values.shape), is_sharded(parameter), copy)

    def _leave_record(self, step: int) -> None:
        """Write what was seen; nothing where this rank has computed no micro-batch. A disk that refuses costs the record only."""
        if not self._seen:
            return
        self._leave_step()
        if self._state.device.type == "cuda":  # FSDP's gradients are on a stream of their own
            torch.cuda.synchronize(self._state.device)
        seen, self._seen = self._seen, {}
        names = self._parameters.values()
        record = RecordedGradients(
            step=step,
            parameters=tuple(seen[name].record(name) for name in names if name in seen),
            unused=tuple(name for name in names if name not in seen),
            edges=self._edges[1:-1],
        )
        self._leave(step, "gradients", lambda file: write_durably(file, compress(record)))
        if self._gradients.snapshots:
            tensors = {name: each.snapshot for name, each in seen.items()}
            self._leave(step, "snapshot", lambda file: torch.save(tensors, file))

    def _leave(self, step: int, kind: ArtifactKind, write: Callable[[Path], None]) -> None:
        file = self._folder / f"{kind}-step-{step}"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write(file)
            leave_note(self._folder, artifact_of(file, kind, step))
        except (OSError, RuntimeError) as error:  # a full disk, which torch.save reports as a RuntimeError
            print(f"WARNING step {step}: {kind} of this rank could not be written: {error}", file=sys.stderr, flush=True)
            file.unlink(missing_ok=True)


def artifact_of(file: Path, kind: ArtifactKind, step: int) -> RankArtifact:
    return RankArtifact(
        name=file.name, kind=kind, first_step=step, last_step=step, time=time.time(), bytes=file.stat().st_size, sha256=sha256_of(file)
    )


def is_sharded(parameter: nn.Parameter) -> bool:
    return isinstance(parameter, DTensor) and not all(placement.is_replicate() for placement in parameter.placements)


def recording_for(
    gradients: Gradients | None, state: TrainState, group: Group, folder: Path, leave_step: Callable[[], None]
) -> GradientRecording:
    """Return what records the gradients of this rank. Collective if any are asked for.

    Raises InvalidInputError for a pattern that no parameter of any rank has, and for more than is kept.
    """
    if gradients is None:
        return NoRecording()
    used = set[str]().union(*group.all_gather_object(patterns_in_use(state.model, gradients.names)))
    for pattern in gradients.names:
        if pattern not in used:
            names = [name for name, _ in trainable_parameters(state.model)]
            some = ", ".join(names[:NAMES_IN_ERRORS]) or "none"
            raise InvalidInputError(
                f"gradients.names: no trainable parameter matches {pattern!r}; of the {len(names)} that rank {group.rank} has: {some}"
            )
    parameters = matching(state.model, gradients.names)
    if reason := why_too_much(gradients, parameters, state.total_steps):
        raise InvalidInputError(reason)
    return GradientRecorder(gradients, parameters, state, folder, leave_step)


def why_too_much(gradients: Gradients, parameters: dict[nn.Parameter, str], total_steps: int) -> str | None:
    """Return why this rank cannot keep what is asked for, with the way out, or None."""
    reason = gradients.why_too_many_steps(total_steps) or gradients.why_too_many_records(len(parameters), total_steps)
    size = sum(local_tensor(parameter).nbytes for parameter in parameters)
    if reason is None and gradients.snapshots and size > MAX_ARTIFACT_BYTES:
        reason = (
            f"gradients.snapshots: the {len(parameters):,} chosen gradients of a rank have {size:,} bytes; at most {MAX_ARTIFACT_BYTES:,} are "
            "kept of each step: choose fewer names, or leave snapshots out"
        )
    return reason
