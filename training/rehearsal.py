"""What a parked rank does before it waits: all that its first step would otherwise do for the first time.

Threads of autograd, kernels and their workspaces, lazy imports, data that is read when it is first asked for: a joiner that
met these in its first step would keep the whole gang waiting.
"""

from __future__ import annotations

from training.saving.shards import put_tensors, tensors_of
from training.spec.job import JobSpec
from training.state import TrainState
from training.steps.step import alone
from training.steps.stepping import Stepping


def rehearse(spec: JobSpec, state: TrainState) -> None:
    """One micro-batch forth and back, one update of nothing, one transfer to itself. Leaves `state` as it was built. Of a model that is to
    be in parts only the data: for all of it and its gradients there may be no room."""
    stepper = alone(spec, state)
    if spec.parallelism.in_parts:
        stepper.fetch(1, 0)
        return
    stepper.go_through([0])
    compile_ahead(stepper)
    put_tensors(state, tensors_of(state))
    state.forget_trial_step()


def compile_ahead(stepper: Stepping) -> None:
    """Whatever a compiled model will need on any world, once in a process: the last micro-batch, which may be smaller, is another rank's after
    a resize, and a step in which it has to be compiled first would look like a hang."""
    if not stepper.state.compiled:
        stepper.go_through(sorted({0, stepper.spec.micro_batches - 1}))
        stepper.state.compiled = True
