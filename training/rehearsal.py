"""What a parked rank does before it waits: all that its first step would otherwise do for the first time.

Threads of autograd, kernels and their workspaces, lazy imports, data that is read when it is first asked for: a joiner that
met these in its first step would keep the whole gang waiting.
"""

from __future__ import annotations

from collections.abc import Set

from distributed.process_group import SoloGroup
from parallelism.data_parallel import Alone
from parallelism.plan import Coordinates, even_deal
from training.saving.shards import put_tensors, tensors_of
from training.spec.job import JobSpec
from training.state import TrainState
from training.steps.step import Stepper


def rehearse(spec: JobSpec, state: TrainState) -> None:
    """One micro-batch forth and back, one update of nothing, one transfer to itself. Leaves `state` as it was built. Of a model that is to
    be in parts only the data: for all of it and its gradients there may be no room."""
    if spec.parallelism.in_parts:
        stepper_of(spec, state).fetch(1, 0)
        return
    go_through(spec, state, {0})
    compile_ahead(spec, state)
    put_tensors(state, tensors_of(state))
    state.forget_trial_step()


def compile_ahead(spec: JobSpec, state: TrainState) -> None:
    """Whatever a compiled model will need on any world, once in a process: the last micro-batch, which may be smaller, is another rank's after
    a resize, and a step in which it has to be compiled first would look like a hang."""
    if not state.compiled:
        go_through(spec, state, {0, spec.micro_batches - 1})
        state.compiled = True


def go_through(spec: JobSpec, state: TrainState, micro_batches: Set[int]) -> None:
    """Of step 1, forth and back, without the others' knowledge; of a model in parts, together with them."""
    stepper = stepper_of(spec, state)
    for index in sorted(micro_batches):
        state.begin_step()
        stepper.forward(index, stepper.fetch(1, index)).backward()  # type: ignore[no-untyped-call]
        state.rewind()


def stepper_of(spec: JobSpec, state: TrainState) -> Stepper:
    """Of a rank by itself."""
    return Stepper(spec, state, SoloGroup(), Alone(state.task.model), Coordinates(), even_deal(spec.micro_batches, 1))
