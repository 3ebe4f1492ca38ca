"""A model whose parameters are updated by servers: workers push gradients to them and pull parameters, step by step and in step.

This is the parameter server of Li et al. (OSDI 2014), synchronous. The first `servers` ranks of the world are the servers; the others are
workers, which compute all micro-batches. Every rank holds the whole model; of the optimizer's state each server holds the part that
belongs to its shard: a contiguous run of whole parameters (and running statistics), as `shards_of` divides them. A step is

    pull    every rank gets the parameters that the step begins with
    push    each worker sends each server the sums of its gradients, subtree by subtree; the server finishes the fixed tree
    norms   each server tells every rank the norms of its gradients, so that all clip alike and come to the same verdict
    update  each server updates its shard, and the step is committed

After the norms every server has all that the update needs. So once any rank has committed the step, every server that lives can finish it
(`ShardUpdate`), and a fault at any moment costs no committed step unless a server is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paceline.distributed.parameter_server.division import divide
from paceline.distributed.parameter_server.exchange import Outgoing, exchange, message
from paceline.distributed.parameter_server.messages import Header, MessageKind, require
from paceline.distributed.parameter_server.shard_server import ShardServer
from paceline.distributed.process_group import Group
from paceline.parallelism.data_parallel.reproducible import or_zeros
from paceline.parallelism.data_parallel.tree_exchange import add_lists
from paceline.parallelism.gradients import clip_by_norm
from paceline.parallelism.own_gradients import show_sums
from paceline.parallelism.parameter_server.aggregation import add_up, rounds
from paceline.parallelism.parameter_server.packing import ShardLayout
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.running_statistics import RunningStatistics
from paceline.parallelism.tree import TreeNode, TreeSum
from paceline.parallelism.wrapped import Sums, WholeModel


@dataclass(frozen=True)
class Shard:
    """The parameters that one server is responsible for."""

    parameters: tuple[nn.Parameter, ...]  # in the order of the model, frozen ones among them
    buffers: tuple[Tensor, ...]  # those that checkpoints hold
    first_buffer: int  # index of the first of `buffers` among all of the model's

    @property
    def trainable(self) -> tuple[nn.Parameter, ...]:
        return tuple(parameter for parameter in self.parameters if parameter.requires_grad)

    @property
    def members(self) -> list[Tensor]:
        """Everything that a pull brings."""
        return [*(parameter.detach() for parameter in self.parameters), *self.buffers]


def shards_of(model: nn.Module, servers: int) -> list[Shard]:
    """Return the shard of each server. Raises `ProtocolError` if the model has fewer tensors than there are servers."""
    parameters, buffers = list(model.parameters()), RunningStatistics(model).buffers
    members = [*parameters, *buffers]
    found = []
    for part in divide([member.nbytes for member in members], servers):
        own = [index for index in part if index < len(parameters)]
        rest = [index - len(parameters) for index in part if index >= len(parameters)]
        found.append(
            Shard(tuple(parameters[index] for index in own), tuple(buffers[index] for index in rest), rest[0] if rest else len(buffers))
        )
    return found


@dataclass(frozen=True)
class ShardUpdate:
    """The sums that one server needs for the update of a step: kept until the step is committed, whatever happens to the group."""

    step: int
    gradients: tuple[tuple[nn.Parameter, Tensor], ...]
    changes: tuple[Tensor, ...]  # of the shard's running statistics
    first_buffer: int
    micro_batches: int

    def put(self, statistics: RunningStatistics) -> None:
        """Put copies of the gradients into the model, and apply the changes to its running statistics."""
        for parameter, gradient in self.gradients:
            parameter.grad = torch.empty_like(parameter).copy_(gradient)  # in its own memory order: fused optimizers go by memory
        changes = [torch.zeros_like(change) for change in statistics.changes(1)]
        for index, change in enumerate(self.changes):
            changes[self.first_buffer + index].copy_(change)
        statistics.apply(changes, self.micro_batches)


class ServedModel(WholeModel):
    """One rank's side of a model that servers update. See `Wrapped`.

    `next_step` returns the number of the step that is under way, or that comes next.
    """

    def __init__(self, model: nn.Module, group: Group, servers: int, next_step: Callable[[], int]) -> None:
        self.module, self._group, self._servers, self._next_step = model, group, servers, next_step
        self._statistics = RunningStatistics(model)
        self._shards = shards_of(model, servers)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        changes = self._statistics.changes(1)
        self._push_layouts = [
            ShardLayout([*shard.trainable, *changes[shard.first_buffer : shard.first_buffer + len(shard.buffers)]])
            for shard in self._shards
        ]
        self._pull_layouts = [ShardLayout(shard.members) for shard in self._shards]
        self._server: ShardServer[list[Tensor]] | None = None  # made with the first pull
        self._pulled_step = 0  # whose parameters this rank has
        self.update: ShardUpdate | None = None  # of the step under way, on a server, once all pushes are in

    @property
    def _is_server(self) -> bool:
        return self._group.rank < self._servers

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self._group.world_size) if rank != self._group.rank]

    @property
    def _other_servers(self) -> list[int]:
        return [rank for rank in range(self._servers) if rank != self._group.rank]

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        for parameter in self._parameters:
            parameter.grad = None  # of a step that broke off
        self.update = None
        self._assignment, self._sums = assignment, TreeSum(assignment.micro_batches, add_lists, sums)
        self._statistics.begin_step()

    @contextlib.contextmanager
    def accumulate(self, index: int, *, final: bool) -> Iterator[None]:
        self._statistics.rewind()
        yield
        gradients = [or_zeros(parameter.grad, parameter) for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        self._sums.put(TreeNode(0, index), [*gradients, *self._statistics.changes(self._assignment.micro_batches)])

    def pull(self) -> bool:
        """Get from the servers the parameters and running statistics that the next step begins with, unless they are here.

        Collective. Returns whether anything was pulled. Raises `ProtocolError`.
        """
        step = self._next_step()
        if self._pulled_step == step:
            return False
        requests = [message(server, MessageKind.PULL, step, self._group.rank, 0, server) for server in self._other_servers]
        exchange(self._group, requests, self._others if self._is_server else [], self._accept_pull)
        self._receive_from_servers(MessageKind.VALUES, step, self._pull_layouts, self._own_values(), self._take_values)
        self._pulled_step = step
        return True

    def _accept_pull(self, source: int, header: Header) -> None:
        self._state_of(self._next_step()).accept_pull(header)

    def _state_of(self, step: int) -> ShardServer[list[Tensor]]:
        """Return this server's state for `step`. The step before it was committed by all ranks, so it is closed here."""
        if self._server is None:
            self._server = ShardServer(self._group.rank, step - 1, self._others)
        elif self._server.step == step - 1:
            self._server.close()
        return self._server

    def _own_values(self) -> Tensor | None:
        if not self._is_server:
            return None
        layout = self._pull_layouts[self._group.rank]
        return layout.pack(self._shards[self._group.rank].members, layout.empty())

    @torch.no_grad()
    def _take_values(self, shard: int, values: Sequence[Tensor]) -> None:
        for member, value in zip(self._shards[shard].members, values, strict=True):
            member.copy_(value)

    def _receive_from_servers(
        self,
        kind: MessageKind,
        step: int,
        layouts: Sequence[ShardLayout],
        own: Tensor | None,
        take: Callable[[int, Sequence[Tensor]], None],
    ) -> None:
        """Send `own`, this server's payload, to every other rank, and hand over what each other server has sent: (shard, tensors)."""
        rank, buffers = self._group.rank, {server: layouts[server].empty() for server in self._other_servers}

        def accept(source: int, header: Header) -> Tensor:
            require(header, Header(kind, step, source, 0, source, layouts[source].size, 0))
            return buffers[source]

        sends = [message(target, kind, step, rank, 0, rank, own) for target in self._others] if own is not None else []
        exchange(self._group, sends, self._other_servers, accept)
        for server, buffer in buffers.items():
            take(server, layouts[server].views(buffer))

    def finish_step(self) -> float:
        """Push, right after the last backward; on a server, add up what comes. Returns the seconds that it took."""
        show_sums(self.observe_gradient, self._parameters, [value for _, value in self._sums.from_left_to_right])
        mark, step = self._group.exposure.mark(), self._next_step()
        if self._is_server:
            self._receive_pushes(step)
        else:
            exchange(self._group, self._pushes(step), [], _nothing_to_accept)
        return self._group.exposure.since(mark)

    def _pushes(self, step: int) -> list[Outgoing]:
        """Return this worker's messages to all servers: one for each subtree of its micro-batches and each shard."""
        found = []
        for number, (_, tensors) in enumerate(self._sums.from_left_to_right):
            gradients = {id(parameter): tensor for parameter, tensor in zip(self._parameters, tensors, strict=False)}
            changes = tensors[len(self._parameters) :]
            for server, shard in enumerate(self._shards):
                own = changes[shard.first_buffer : shard.first_buffer + len(shard.buffers)]
                layout = self._push_layouts[server]
                payload = layout.pack([*(gradients[id(parameter)] for parameter in shard.trainable), *own], layout.empty())
                found.append(message(server, MessageKind.PUSH, step, self._group.rank, number, server, payload))
        return found

    def _receive_pushes(self, step: int) -> None:
        state, layout, expected = self._state_of(step), self._push_layouts[self._group.rank], rounds(self._assignment)
        state.open(expected, layout.size)
        buffers: list[Tensor] = []

        def accept(source: int, header: Header) -> Tensor:
            state.accept_push(header)
            buffers.append(layout.empty())
            return buffers[-1]

        headers = exchange(self._group, [], [rank for rank, count in expected.items() for _ in range(count)], accept)
        for header, buffer in zip(headers, buffers, strict=True):
            state.put(header, layout.views(buffer))
        sums = add_up(self._assignment, state.pushes(), add_lists)
        shard = self._shards[self._group.rank]
        trainable = shard.trainable
        self.update = ShardUpdate(
            step,
            tuple(zip(trainable, sums, strict=False)),
            tuple(sums[len(trainable) :]),
            shard.first_buffer,
            self._assignment.micro_batches,
        )
        self.update.put(self._statistics)

    @torch.no_grad()
    def clip(self, limit: float | None) -> Tensor:
        """Exchange the norms of the gradients, and clip those of this rank's shard. Collective.

        Returns the norm of all gradients before clipping: the same bits on every rank, and those that one process finds.
        """
        step, rank = self._next_step(), self._group.rank
        norms: dict[int, Tensor] = {}

        def note(shard: int, values: Sequence[Tensor]) -> None:
            for parameter, norm in zip(self._shards[shard].trainable, values[0], strict=True):
                norms[id(parameter)] = norm.to(parameter.dtype)

        layouts = [ShardLayout([torch.empty(len(shard.trainable), dtype=torch.float64)]) for shard in self._shards]
        own = None
        if self._is_server:
            values = [norms_of(self._shards[rank].trainable)]
            note(rank, values)
            own = layouts[rank].pack(values, layouts[rank].empty())
        self._receive_from_servers(MessageKind.NORMS, step, layouts, own, note)
        norm: Tensor = torch.linalg.vector_norm(torch.stack([norms[id(parameter)] for parameter in self._parameters]))
        if self._is_server:
            clip_by_norm([or_zeros(parameter.grad, parameter) for parameter in self._shards[rank].trainable], norm, limit)
        return norm

    def sync_buffers(self) -> None:
        """Make parameters and running statistics equal on every rank. Collective."""
        self.pull()


def norms_of(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the 2-norm of each parameter's gradient as (n) numbers of double precision, on the host. Each is computed in its own type."""
    norms = [torch.linalg.vector_norm(or_zeros(parameter.grad, parameter)).double().cpu() for parameter in parameters]
    return torch.stack(norms) if norms else torch.empty(0, dtype=torch.float64)


def _nothing_to_accept(source: int, header: Header) -> None:
    raise AssertionError(f"{header} from rank {source}: a worker receives nothing while it pushes")
