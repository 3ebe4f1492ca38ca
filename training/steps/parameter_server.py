"""A step of a job with parameter servers: pull, compute, push, update; see `parallelism/parameter_server/served_model.py`."""

from __future__ import annotations

from torch import Tensor

from paceline.distributed.process_group import Group
from paceline.parallelism.parameter_server.served_model import ServedModel
from paceline.parallelism.plan import Coordinates, MicroBatchAssignment
from paceline.training.spec.job import JobSpec
from paceline.training.state import PartialStep, TrainState
from paceline.training.steps.step import LocalStepRunner
from paceline.training.steps.step_sync import BoundaryRequests, StepConsensus
from paceline.training.steps.stepping import StepClock


class ServedStepRunner(LocalStepRunner):
    """A worker computes its micro-batches as any data rank does; a server computes none, and has the only gradients to update with."""

    def __init__(
        self, spec: JobSpec, state: TrainState, group: Group, served: ServedModel, coordinates: Coordinates, first: MicroBatchAssignment
    ) -> None:
        super().__init__(spec, state, group, served, coordinates, first)
        self.served = served

    def accumulate(self, partial: PartialStep, clock: StepClock, requests: BoundaryRequests) -> StepConsensus:
        if self.served.pull():
            self.state.buffers_before = tuple(buffer.clone() for buffer in self.state.task.model.buffers())
        clock.lap("communication_seconds")
        agreed = super().accumulate(partial, clock, requests)
        self.state.pending_update = self.served.update  # before any rank hears of this server's norms, and may commit
        return agreed

    def clip(self, limit: float | None) -> Tensor:
        return self.served.clip(limit)
