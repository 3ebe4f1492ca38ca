"""One stage of a pipeline: its forward and backward passes over micro-batches in any order, and how their gradients are added up.

Gradients are summed, and running statistics updated, in place or in the fixed tree. In place, a gradient is added to the parameter's, pass
by pass, in the order of the rank's schedule, and then summed once over the replicas. In the tree each micro-batch's gradients are kept
apart until its backward is done, and are then added in the tree, so that the sums have the same bits on any number of replicas, whichever
of them computed a micro-batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paceline.distributed.process_group import Group
from paceline.parallelism.data_parallel.reproducible import laid_out_as, or_zeros, trainable
from paceline.parallelism.data_parallel.tree_exchange import TreeExchange
from paceline.parallelism.gradients import AxisGroups, reduce_partial_gradients, sum_gradients
from paceline.parallelism.own_gradients import GradientObserver, show_gradients, show_sums
from paceline.parallelism.pipelines.chain import Chain
from paceline.parallelism.pipelines.deferred_weight_grads import DeferredWeightGrad, Product
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.running_statistics import RunningStatistics, saved_buffers


class GradientAccumulator:
    """Accumulates the gradients of one stage. This base class leaves them in the parameters, where backward adds them up."""

    def begin_step(self, assignment: MicroBatchAssignment) -> None:
        """Begin a step. `assignment`: of the pipeline's micro-batches, which `index` counts below."""

    def forward(self, index: int) -> contextlib.AbstractContextManager[None]:
        """Return the context for a forward pass whose backward will follow."""
        return contextlib.nullcontext()

    def backward(self, index: int) -> contextlib.AbstractContextManager[None]:
        """Return the context for each part of a micro-batch's backward."""
        return contextlib.nullcontext()

    def done(self, index: int) -> None:
        """Finish a micro-batch, whose backward is complete."""


@dataclass
class InFlightMicroBatch:
    """A micro-batch between its forward pass and the end of its backward pass in one stage."""

    inputs: Tensor
    outputs: Tensor | None  # None: backward has run, except for deferred weight gradients
    deferred: list[Product] | None  # filled by backward; None: the stage before needs no gradient, so nothing is deferred
    gradient: Tensor | None = None  # of the outputs, until backward has run


class Stage:
    """A stage of the model on this rank. `chain` keeps the stage's parameters for the life of the pipeline."""

    def __init__(self, chain: Chain, deferred: DeferredWeightGrad, accumulator: GradientAccumulator) -> None:
        """`deferred`: defers the weight gradients that `backward_input` leaves to `backward_weight`. `accumulator`: how gradients are
        added up.
        """
        self.outputs = chain
        self.units, self.parameters = chain.units, list(chain.parameters())
        self._deferred, self.accumulator = deferred, accumulator
        self._in_flight: dict[int, InFlightMicroBatch] = {}

    def begin_step(self, assignment: MicroBatchAssignment) -> None:
        """Begin a step and drop what an interrupted step has left."""
        self._in_flight.clear()
        self.accumulator.begin_step(assignment)

    def forward(self, index: int, inputs: Tensor, *, gradient: bool, head: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Run the forward pass of micro-batch `index` and return its outputs, or its loss where `head` computes one, on the last stage.

        `gradient`: the stage before needs the gradient of `inputs`.
        """
        inputs = inputs.detach().requires_grad_(gradient and torch.is_grad_enabled())
        deferred: list[Product] | None = [] if inputs.requires_grad else None
        learns = torch.is_grad_enabled()
        with self.accumulator.forward(index) if learns else contextlib.nullcontext(), self._deferred.collecting(deferred):
            outputs: Tensor = self.outputs(inputs)
            outputs = outputs if head is None else head(outputs)
        if learns:
            self._in_flight[index] = InFlightMicroBatch(inputs, outputs, deferred)
        return outputs.detach()

    def backward(self, index: int, gradient: Tensor | None) -> Tensor | None:
        """Run the whole backward pass of a micro-batch and return the gradient of its inputs, if the stage before needs it.

        `gradient`: of the outputs; None where they are the loss, or no later stage is trained.
        """
        found = self.backward_input(index, gradient)
        self.backward_weight(index)
        return found

    def backward_input(self, index: int, gradient: Tensor | None) -> Tensor | None:
        """Run the backward pass without what is deferred, and return the gradient of the inputs; `backward_weight` computes the rest.

        If the stage before needs no gradient, nothing is computed yet.
        """
        in_flight = self._in_flight[index]
        in_flight.gradient = gradient
        if in_flight.inputs.requires_grad:
            with self.accumulator.backward(index):
                self._run_backward(in_flight)
        return in_flight.inputs.grad

    def backward_weight(self, index: int) -> None:
        """Compute the deferred weight gradients of a micro-batch and finish it."""
        in_flight = self._in_flight.pop(index)
        with self.accumulator.backward(index):
            self._run_backward(in_flight)
            while in_flight.deferred:
                in_flight.deferred.pop(0).add()
        self.accumulator.done(index)

    def _run_backward(self, in_flight: InFlightMicroBatch) -> None:
        """Run autograd's backward for a micro-batch. A second call does nothing: the first one releases the outputs."""
        outputs, gradient, in_flight.outputs, in_flight.gradient = in_flight.outputs, in_flight.gradient, None, None
        if outputs is not None and outputs.requires_grad:
            with self._deferred.collecting(in_flight.deferred):
                torch.autograd.backward(outputs, gradient)


class InPlaceAccumulation:
    """Sums a rank's gradients over all mesh axes after the last backward."""

    def __init__(self, chains: Mapping[int, Chain], axis_groups: AxisGroups) -> None:
        """`chains`: the rank's stages by number. `axis_groups`: of the world."""
        self.accumulators = {stage: GradientAccumulator() for stage in chains}
        self._chains, self._axis_groups = tuple(chains.values()), axis_groups
        self._trainable = [each for each in nn.ModuleList(chains.values()).parameters() if each.requires_grad]

    def show(self, observe: GradientObserver | None) -> None:
        """Show this rank's gradients, before they are summed."""
        show_gradients(observe, self._trainable)

    def finish_step(self) -> None:
        """Sum every gradient over the replicas, and over the ranks that have used the parameter on different positions. Collective."""
        for parameter in self._trainable:
            parameter.grad = or_zeros(parameter.grad, parameter)
        if "tensor" in self._axis_groups and "shard" not in self._axis_groups:  # FSDP has reduced the gradients that it shards
            reduce_partial_gradients(self._trainable, self._axis_groups["tensor"])
        sum_gradients(self._trainable, self._axis_groups)

    @torch.no_grad()
    def sync_buffers(self) -> None:
        """Replace running statistics by their mean over the ranks with the same stages, as plain data parallelism does. Collective."""
        buffers = [buffer for chain in self._chains for buffer in saved_buffers(chain)]
        for axis, axis_group in self._axis_groups.items():
            for buffer in buffers:
                if axis != "pipeline" and buffer.is_floating_point():
                    buffer.copy_(axis_group.sum(buffer.double()).div_(axis_group.size))  # in double precision as in `average_buffers`


class TreeAccumulation:
    """Sums a rank's gradients in the fixed binary tree, for reproducible jobs whose only axis beside the pipeline is `replicate`."""

    def __init__(self, chains: Mapping[int, Chain], group: Group) -> None:
        self.accumulators = {stage: TreeAccumulator(chain, group) for stage, chain in chains.items()}

    def show(self, observe: GradientObserver | None) -> None:
        """Show this rank's gradients, stage by stage, before they are summed."""
        for accumulator in self.accumulators.values():
            accumulator.show(observe)

    def finish_step(self) -> None:
        """Sum the gradients of every stage over the replicas. Collective."""
        for accumulator in self.accumulators.values():
            accumulator.finish_step()

    def sync_buffers(self) -> None:
        """Do nothing: every replica applies the same changes to its buffers."""


class TreeAccumulator(GradientAccumulator):
    """Accumulates the gradients of one stage in the fixed tree, whose leaves are the micro-batches."""

    def __init__(self, chain: Chain, group: Group) -> None:
        self._parameters, self._statistics = trainable(chain.parameters()), RunningStatistics(chain)
        self._tree = TreeExchange(group)
        self._found: dict[int, list[Tensor | None]] = {}  # by micro-batch whose backward has begun: its gradients
        self._changes: dict[int, list[Tensor]] = {}  # by micro-batch that is not done: its changes of running statistics

    def begin_step(self, assignment: MicroBatchAssignment) -> None:
        self._found.clear()
        self._changes.clear()
        self._assignment = assignment
        self._tree.begin_step(assignment, lambda: [*self._parameters, *self._statistics.changes(1)], {})
        self._statistics.begin_step()

    @contextlib.contextmanager
    def forward(self, index: int) -> Iterator[None]:
        yield
        self._changes[index] = self._statistics.changes(self._tree.leaves)
        self._statistics.rewind_into_copies()

    @contextlib.contextmanager
    def backward(self, index: int) -> Iterator[None]:
        for parameter, gradient in zip(self._parameters, self._found.pop(index, ()), strict=False):
            parameter.grad = gradient
        yield
        self._found[index] = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None

    def done(self, index: int) -> None:
        gradients = map(or_zeros, self._found.pop(index), self._parameters)
        self._tree.put(self._assignment.own[index], [*gradients, *self._changes.pop(index)])

    def show(self, observe: GradientObserver | None) -> None:
        show_sums(observe, self._parameters, self._tree.own_sums)

    def finish_step(self) -> None:
        sums = self._tree.finish_step()
        for parameter, sum_ in zip(self._parameters, sums, strict=False):
            gradient = laid_out_as(parameter, sum_)
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient  # it may be in two stages of this rank
        self._statistics.apply(sums[len(self._parameters) :], self._tree.leaves)
