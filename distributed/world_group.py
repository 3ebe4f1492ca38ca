"""The group of a world of several ranks: gloo, and NCCL for CUDA tensors.

`all_gather_object` unpickles what other ranks sent: all ranks of a job are one trust domain.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Store
from torch.futures import Future

from paceline.distributed.abort import ABORTED, GroupAborter, wait_for
from paceline.distributed.axis_groups import AxisGroup, create_axis_groups
from paceline.distributed.calls import Call, point_to_point_call
from paceline.distributed.errors import GenerationOverError
from paceline.distributed.exposure import exposure_on
from paceline.distributed.frames import bytes_of, gather_objects, padded
from paceline.distributed.process_group import Axes, PointToPoint
from paceline.distributed.reduction import GradientBucket, Reduction
from paceline.distributed.reduction_groups import ReductionRequest, create_reduction_groups
from paceline.distributed.timeouts import COLLECTIVE_SECONDS
from paceline.distributed.traffic import WORLD, SentBytes, Traffic, all_reduce_bytes, gather_bytes, transfer_bytes

COLLECTIVE_TIMEOUT = timedelta(seconds=COLLECTIVE_SECONDS)


class WorldGroup:
    """All ranks that meet in `store`, over gloo, and over NCCL for CUDA tensors."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        device: torch.device,
        store: Store,
        aborter: GroupAborter,
        axes: Axes,
        reductions: ReductionRequest | None = None,
    ) -> None:
        self.rank, self.world_size = rank, world_size
        self._aborter, self._device, self.traffic = aborter, device, Traffic((*axes, WORLD))
        self.exposure = exposure_on(device)
        dist.init_process_group(
            backend="cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=COLLECTIVE_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
        # Before `complete_rendezvous`: their sockets belong to the group and must be known to the aborter.
        self.axis_groups: Mapping[str, AxisGroup] = create_axis_groups(axes, self.rank, aborter, self.traffic, self.exposure)
        self.reduction_groups = (
            create_reduction_groups(axes, self.rank, reductions, store, aborter, self.traffic) if reductions is not None else None
        )
        aborter.complete_rendezvous()

    def sent(self) -> SentBytes:
        """Return the bytes sent and the seconds of overlap, which are None on GPUs (NCCL runs behind the host) and in pipelines (ends of
        sends are not seen).
        """
        overlapped = self._aborter.calls.overlap.lap()
        return SentBytes(self.traffic.lap(), overlapped if self._device.type == "cpu" and "pipeline" not in self.axis_groups else None)

    def sum(self, values: Tensor, *, along: str = WORLD, overlaps: bool = False) -> Future[Tensor]:
        call = self._aborter.calls.begin("sum", values)
        if not overlaps:
            self._aborter.calls.awaited = call
        return self._sum(values, call, along)

    def _sum(self, values: Tensor, call: Call, along: str) -> Future[Tensor]:
        self.traffic.add(along, all_reduce_bytes(values, self.world_size))
        work: Any = dist.all_reduce(self._aborter.in_flight.alias(values), async_op=True)
        if values.device.type == "cpu":
            promise = self._aborter.abortable_future(work, call, values)
            self._aborter.calls.overlap.follow(promise)
            return promise
        self._aborter.calls.done(call)  # on a GPU the host does not wait here, but where a value is read
        future: Future[Tensor] = work.get_future().then(lambda sums: sums.value()[0])
        return future

    def start_reduction(self, reduction: Reduction, bucket: GradientBucket, *, overlaps: bool = False) -> Future[Tensor]:
        call = self._aborter.calls.begin("sum", bucket.values)
        if not overlaps:
            self._aborter.calls.awaited = call
        promise = self._aborter.run_in_order(lambda: reduction.sum(bucket), call, bucket.values)
        self._aborter.calls.overlap.follow(promise)
        return promise

    def start_sum(self, values: Tensor) -> Callable[[], Tensor]:
        call = self._aborter.calls.begin("sum", values)
        future = self._sum(values, call, WORLD)

        def finish() -> Tensor:
            with self._aborter.calls.awaiting(call):
                future.wait()
                self._require_whole(values)
            return values

        return finish

    def _require_whole(self, *values: Tensor) -> None:
        """Raise `GenerationOverError` if the group was aborted while NCCL computed `values`: an aborted kernel ends as if it had
        succeeded.
        """
        devices = {tensor.device for tensor in values if tensor.device.type == "cuda"}
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        if devices and self._aborter.aborted.is_set():
            raise GenerationOverError(ABORTED)

    def start_gather(self, content: bytes, lengths: Sequence[int]) -> Callable[[], list[bytes]]:
        padded_content = padded(content, max(lengths))
        found, future = self._start_gather(padded_content, self._aborter.calls.begin("gather", padded_content))

        def finish() -> list[bytes]:
            future.wait()
            return [bytes_of(each[:length]) for each, length in zip(found, lengths, strict=True)]

        return finish

    def all_gather_object(self, value: Any) -> list[Any]:
        return gather_objects(value, self._gather)

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the `tensor` of every rank; all are CPU tensors of one shape."""
        call = self._aborter.calls.begin("gather", tensor)
        with self._aborter.calls.awaiting(call):
            found, future = self._start_gather(tensor, call)
            future.wait()
        return found

    def _start_gather(self, tensor: Tensor, call: Call) -> tuple[list[Tensor], Future[Tensor]]:
        """Return the tensors of all ranks by rank, and the future after which they are there."""
        self.traffic.add(WORLD, gather_bytes(tensor, self.world_size))
        found, alias = [torch.empty_like(tensor) for _ in range(self.world_size)], self._aborter.in_flight.alias
        work = dist.all_gather([*map(alias, found)], alias(tensor), async_op=True)
        return found, self._aborter.abortable_future(work, call, tensor)

    def send(self, tensor: Tensor, target: int) -> None:
        with self._aborter.calls.awaiting(point_to_point_call(f"send to rank {target}")):
            self._transfer([dist.P2POp(dist.isend, tensor, target)], WORLD)

    def receive(self, tensor: Tensor, source: int) -> None:
        with self._aborter.calls.awaiting(point_to_point_call(f"receive from rank {source}")):
            self._transfer([dist.P2POp(dist.irecv, tensor, source)], WORLD)

    def transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> None:
        with self._aborter.calls.awaiting(self._aborter.calls.begin("exchange")):
            self._transfer(operations, along)

    def start_transfer(self, operations: list[dist.P2POp], *, along: str = WORLD) -> PointToPoint:
        self.traffic.add(along, transfer_bytes(operations))
        return PointToPoint(dist.batch_isend_irecv(operations) if operations else (), operations)

    def start_exchange(self, operations: list[dist.P2POp], then: Callable[[], list[dist.P2POp]], *, along: str = WORLD) -> Future[None]:
        promise = self._aborter.wait_in_turn(
            self.start_transfer(operations, along=along).works, lambda: self.start_transfer(then(), along=along).works
        )
        self._aborter.calls.overlap.follow(promise)
        return promise

    def end_exchanges(self, exchanges: Sequence[Future[None]]) -> None:
        with self._aborter.calls.awaiting(self._aborter.calls.begin("exchange")):
            for exchange in exchanges:
                exchange.wait()

    def end_transfers(self, transfers: Sequence[PointToPoint]) -> None:
        peers = ", ".join(map(str, sorted({operation.peer for transfer in transfers for operation in transfer.operations})))
        with self._aborter.calls.awaiting(point_to_point_call(f"transfer with rank {peers}")):
            self._end(transfers)

    def _transfer(self, operations: list[dist.P2POp], along: str) -> None:
        self._end([self.start_transfer(operations, along=along)])
        self._require_whole(*(operation.tensor for operation in operations))

    def _end(self, transfers: Sequence[PointToPoint]) -> None:
        works = [work for transfer in transfers for work in transfer.works]
        if all(operation.tensor.device.type == "cpu" for transfer in transfers for operation in transfer.operations):
            self._aborter.wait(works)
        else:
            mark = self.exposure.mark()
            wait_for(works)
            self.exposure.since(mark)

    def wait_for_future(self, work: concurrent.futures.Future[Any]) -> None:
        self._aborter.wait_for_future(work)

    def process_group(self) -> dist.ProcessGroup | None:
        return dist.group.WORLD

    def barrier_and_leave(self) -> None:
        self.sum(torch.zeros(1)).wait()
        self._aborter.wait_for_threads()

    def close(self) -> None:
        """Destroy the group. Hazard: drop all references to wrappers, losses and autograd graphs first, or peers wait for the time-out."""
        if self.reduction_groups is not None:
            self.reduction_groups.close()
        dist.destroy_process_group()
