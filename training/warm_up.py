"""Warm-up of a parked rank: everything that its first step would otherwise do for the first time.

Threads of autograd, kernels and their workspaces, lazy imports, and data that is read on first use: a joiner that met these in its first
step would keep the whole gang waiting.
"""

from __future__ import annotations

from paceline.training.saving.shards import put_tensors, tensors_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import TrainState
from paceline.training.steps.step import solo_step_runner
from paceline.training.steps.stepping import StepRunner


def warm_up_step(spec: JobSpec, state: TrainState) -> None:
    """Run one micro-batch forward and backward, one empty update, and one transfer to itself. Leaves `state` as it was built.

    For a model that is to be sharded only the data is fetched: there may be no room for all of it and its gradients.
    """
    step_runner = solo_step_runner(spec, state)
    if spec.parallelism.in_parts:
        step_runner.fetch(1, 0)
        return
    step_runner.run_warmup([0])
    compile_ahead(step_runner)
    put_tensors(state, tensors_of(state))
    state.discard_trial_step()


def compile_ahead(step_runner: StepRunner) -> None:
    """Compile, once in a process, everything that a compiled model needs on any world.

    After a resize the last micro-batch, which may be smaller, is another rank's, and a step in which it had to be compiled would look like
    a hang.
    """
    if not step_runner.state.compiled:
        step_runner.run_warmup(sorted({0, derived.micro_batches(step_runner.spec) - 1}))
        step_runner.state.compiled = True
