"""What a parked rank does before it waits: all that its first step would otherwise do for the first time.

Threads of autograd, kernels and their workspaces, lazy imports, data that is read when it is first asked for: a joiner that
met these in its first step would keep the whole gang waiting.
"""

from __future__ import annotations

from distributed.process_group import SoloGroup
from parallelism.data_parallel import Alone
from parallelism.plan import even_deal
from training.shards import put_tensors, tensors_of
from training.spec import JobSpec
from training.state import TrainState
from training.step import Stepper


def rehearse(spec: JobSpec, state: TrainState) -> None:
    """One micro-batch forth and back, one update of nothing, one transfer to itself. Leaves `state` as it was built."""
    stepper = Stepper(spec, state, SoloGroup(), Alone(state.task.model), even_deal(spec.micro_batches, 1))
    state.begin_step()
    stepper.forward(0, stepper.fetch(1, 0)).backward()  # type: ignore[no-untyped-call]
    state.rewind()
    put_tensors(state, tensors_of(state))  # makes the optimizer's state by a step with gradients and learning rate zero ...
    state.optimizer.state.clear()  # ... which it counts: a job that is still at step 0 has not taken it
