"""Records a rank's own gradients as artifacts in the rank's folder: at the steps that the job's spec chooses, and at those that are asked for."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paceline.distributed.process_group import Group
from paceline.monitoring.artifacts import MAX_ARTIFACT_BYTES, ArtifactKind, RankArtifact, leave_note, sha256_of
from paceline.monitoring.files import write_durably
from paceline.monitoring.gradient_records import MAX_PARAMETERS, ParameterRecord, RecordedGradients, compress
from paceline.parallelism.mesh import local_tensor
from paceline.parallelism.wrapped import PreparedModel
from paceline.training.errors import InvalidInputError
from paceline.training.gradients.names import NAMES_IN_ERRORS, matching, patterns_in_use, trainable_parameters
from paceline.training.gradients.statistics import PendingStatistics, histogram_edges, measure
from paceline.training.link import GradientsRequest
from paceline.training.optim.bad_loss import BadLossError
from paceline.training.schema.gradients import DEFAULT_BINS, Gradients
from paceline.training.state import TrainState


class RecordedRank(Protocol):
    """Interface of the rank whose gradients are recorded."""

    @property
    def gradients_wanted(self) -> GradientsRequest | None:
        """The latest request for gradients made while the job runs."""

    def leave_step(self) -> None:
        """Called before something that takes a while."""


@dataclass(frozen=True)
class StepChoice:
    """The gradients that are recorded of a step. `parameters`: in the model's order. `kept`: those whose gradients themselves are kept."""

    parameters: Mapping[nn.Parameter, str]
    kept: Collection[nn.Parameter]
    request: str | None = None  # id of the request for it while the job runs


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
    """Records one rank's gradients in one generation: at the steps of its job's spec, and at those that are asked for while the job runs. It measures
    while the step runs, and writes once the step is over.

    `parameters`: those that `gradients` chooses. `folder`: of the rank's artifacts.
    """

    def __init__(
        self, gradients: Gradients | None, parameters: dict[nn.Parameter, str], state: TrainState, folder: Path, rank: RecordedRank
    ) -> None:
        self._gradients, self._state, self._folder, self._rank = gradients, state, folder, rank
        self._of_spec = StepChoice(parameters, parameters if gradients is not None and gradients.snapshots else ())
        heard = rank.gradients_wanted
        self._served = heard.id if heard is not None else None  # what was asked of an earlier generation ended with it
        self._due: GradientsRequest | None = None
        self._edges = histogram_edges(gradients.bins if gradients is not None else DEFAULT_BINS)
        self._edges_on_device = torch.tensor(self._edges, dtype=torch.float32, device=state.device)
        self._choice = self._of_spec
        self._seen: dict[str, _Seen] = {}

    @property
    def wanted(self) -> bool:
        """Whether this rank knows of a request that it has not obeyed."""
        request = self._rank.gradients_wanted
        return request is not None and request.id != self._served

    def record_next(self) -> None:
        """Obey the request at the next step: all ranks know of it."""
        self._due = self._rank.gradients_wanted
        self._served = self._due.id if self._due is not None else None

    @contextlib.contextmanager
    def recording(self, prepared: PreparedModel, step: int) -> Iterator[None]:
        """Record `step` if it is chosen, also where its loss is bad. A step that breaks off otherwise is not recorded: it is done again."""
        choice = self._choose(step)
        if choice is None:
            yield
            return
        self._choice = choice
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

    def _choose(self, step: int) -> StepChoice | None:
        """Return what is to be recorded of `step`: what the spec chooses and what is asked for, in one record. None: nothing."""
        request, self._due = self._due, None
        of_spec = self._of_spec if self._gradients is not None and self._gradients.includes(step) else None
        if request is None:
            return of_spec
        asked = matching(self._state.model, request.names)
        if reason := why_not(request, asked, self._state.model):
            self._leave_error(step, "gradients", request.id, reason)
            return of_spec
        kept = set(asked if request.snapshots else ())
        if of_spec is not None and self._gradients is not None:
            asked = matching(self._state.model, (*self._gradients.names, *request.names))
            kept |= set(of_spec.kept)
        return StepChoice(asked, kept, request.id)

    @torch.no_grad()
    def _see(self, parameter: nn.Parameter, gradient: Tensor) -> None:
        """Measure a gradient, without the loss scale of fp16, on its device."""
        name = self._choice.parameters.get(parameter)
        if name is None:
            return
        values = local_tensor(gradient.detach())
        if values.is_sparse:  # of nn.Embedding(sparse=True)
            values = values.to_dense()
        if self._state.scale.value != 1.0:
            values = values / self._state.scale.value
        edges = self._edges_on_device.to(values.device)  # of gradients on the host, with parallelism.cpu_offload
        copy = values.to("cpu", copy=True) if parameter in self._choice.kept else None
        self._seen[name] = _Seen(measure(values, edges), tuple(values.shape), is_sharded(parameter), copy)

    def _leave_record(self, step: int) -> None:
        """Write what was seen; nothing where this rank has computed no micro-batch. A disk that refuses costs the record only."""
        choice = self._choice
        if not self._seen:
            if choice.request is not None:
                self._leave_error(step, "gradients", choice.request, f"this rank has computed no micro-batch of step {step}")
            return
        self._rank.leave_step()
        if self._state.device.type == "cuda":  # FSDP's gradients are on a stream of their own
            torch.cuda.synchronize(self._state.device)
        seen, self._seen = self._seen, {}
        names = choice.parameters.values()
        record = RecordedGradients(
            step=step,
            parameters=tuple(seen[name].record(name) for name in names if name in seen),
            unused=tuple(name for name in names if name not in seen),
            edges=self._edges[1:-1],
        )
        self._leave(step, "gradients", lambda file: write_durably(file, compress(record)))
        if choice.kept:
            tensors = {name: each.snapshot for name, each in seen.items() if each.snapshot is not None}
            self._leave(step, "snapshot", lambda file: torch.save(tensors, file))

    def _leave(self, step: int, kind: ArtifactKind, write: Callable[[Path], None]) -> None:
        file, request = self._folder / f"{kind}-step-{step}", self._choice.request
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write(file)
            leave_note(self._folder, artifact_of(file, kind, step, request))
        except (OSError, RuntimeError) as error:  # a full disk, which torch.save reports as a RuntimeError
            print(f"WARNING step {step}: {kind} of this rank could not be written: {error}", file=sys.stderr, flush=True)
            file.unlink(missing_ok=True)
            if request is not None:
                self._leave_error(step, kind, request, f"it could not be written: {error}")

    def _leave_error(self, step: int, kind: ArtifactKind, request: str, why: str) -> None:
        """Tell the user who asked why this rank leaves nothing, where the disk allows it."""
        note = RankArtifact(
            name=f"{kind}-{request}", kind=kind, first_step=step, last_step=step, time=time.time(), request=request, error=why
        )
        try:
            leave_note(self._folder, note)
        except OSError as error:
            print(f"WARNING no {kind} of step {step}: {why}; nor can that be noted: {error}", file=sys.stderr, flush=True)


def artifact_of(file: Path, kind: ArtifactKind, step: int, request: str | None) -> RankArtifact:
    return RankArtifact(
        name=file.name,
        kind=kind,
        first_step=step,
        last_step=step,
        time=time.time(),
        request=request,
        bytes=file.stat().st_size,
        sha256=sha256_of(file),
    )


def is_sharded(parameter: nn.Parameter) -> bool:
    return isinstance(parameter, DTensor) and not all(placement.is_replicate() for placement in parameter.placements)


def recorder_for(gradients: Gradients | None, state: TrainState, group: Group, folder: Path, rank: RecordedRank) -> GradientRecorder:
    """Return what records the gradients of this rank. Collective if the spec asks for any.

    Raises InvalidInputError for a pattern that no parameter of any rank has, and for more than is kept.
    """
    if gradients is None:
        return GradientRecorder(None, {}, state, folder, rank)
    used = set[str]().union(*group.all_gather_object(patterns_in_use(state.model, gradients.names)))
    for pattern in gradients.names:
        if pattern not in used:
            raise InvalidInputError(
                f"gradients.names: no trainable parameter matches {pattern!r}; of the {some_names(state.model, f'rank {group.rank}')}"
            )
    parameters = matching(state.model, gradients.names)
    if reason := why_too_much(gradients, parameters, state.total_steps):
        raise InvalidInputError(reason)
    return GradientRecorder(gradients, parameters, state, folder, rank)


def why_not(request: GradientsRequest, parameters: Collection[nn.Parameter], model: nn.Module) -> str | None:
    """Return why this rank cannot record the `parameters` that `request` names, with the way out, or None."""
    if not parameters:
        return f"no trainable parameter matches {', '.join(request.names)}; of the {some_names(model, 'this rank')}"
    if len(parameters) > MAX_PARAMETERS:
        return f"{len(parameters):,} parameters of a rank are chosen; at most {MAX_PARAMETERS:,} are recorded: choose fewer names"
    return why_too_large(parameters) if request.snapshots else None


def why_too_much(gradients: Gradients, parameters: dict[nn.Parameter, str], total_steps: int) -> str | None:
    """Return why this rank cannot keep what its job's spec asks for, with the way out, or None."""
    reason = gradients.why_too_many_steps(total_steps) or gradients.why_too_many_records(len(parameters), total_steps)
    if reason is None and gradients.snapshots and (reason := why_too_large(parameters)):
        reason = f"gradients.snapshots: {reason}"
    return reason


def why_too_large(parameters: Collection[nn.Parameter]) -> str | None:
    """Return why the gradients of `parameters` cannot be kept as a rank's snapshot of one step, with the way out, or None."""
    size = sum(local_tensor(parameter).nbytes for parameter in parameters)
    if size <= MAX_ARTIFACT_BYTES:
        return None
    return (
        f"the {len(parameters):,} chosen gradients of a rank have {size:,} bytes; at most {MAX_ARTIFACT_BYTES:,} are kept of each step: choose "
        "fewer names, or leave snapshots out"
    )


def some_names(model: nn.Module, rank: str) -> str:
    """Return how many trainable parameters a model has and the names of the first, for an error."""
    names = [name for name, _ in trainable_parameters(model)]
    return f"{len(names)} that {rank} has: {', '.join(names[:NAMES_IN_ERRORS]) or 'none'}"
