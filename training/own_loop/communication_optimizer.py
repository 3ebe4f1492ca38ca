"""Sums of gradients that send less, for loops that call torch.distributed themselves."""

from __future__ import annotations

import atexit
import math
import weakref
from numbers import Real

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # documented, and not in its __all__
from torch.nn.parallel import DistributedDataParallel

from paceline.distributed.abort import GroupAborter
from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.calls import Calls
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import Compression, CompressionOptions
from paceline.distributed.reduction import GradientBucket, GradientPiece, Reduction
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.distributed.traffic import Traffic
from paceline.parallelism.communication.pieces import PieceMaker
from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.hierarchy import require_hierarchy

_AXIS = "gradients"


class CommunicationOptimizer:
    """Averages gradients over ranks by sending their largest elements only, or within machines and then between them.

    What is not sent is added to the same gradient the next time (error feedback: Lin et al. 2018, Deep Gradient Compression). Every rank gets the same
    bits. All ranks make the same calls in the same order. Results are means over the ranks, as DDP's; a process without a process group is a world of
    one, in which nothing is sent or changed. It may be made before torch's process group is: that is looked up again until there is one.

    Gradients of a scaled loss (`torch.amp.GradScaler`, fp16) must not be compressed: what is not sent would keep the scale of its own step, and count
    twice once that is halved, and of a step that the scaler leaves out all that was sent would be lost. bf16 needs no scale, and compression_ratio=1
    keeps nothing.
    """

    def __init__(
        self,
        compression_ratio: float = 0.01,
        bucket_size_mb: float = 25.0,
        enable_overlap: bool = True,
        *,
        model: nn.Module | None = None,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        """Take how gradients are summed.

        `compression_ratio`: share of the elements that is sent, over 0 and up to 1, which sends all. `bucket_size_mb`, `enable_overlap`: for
        `wrap`: MiB that are summed together, and whether backward goes on meanwhile. `model`: gives gradients their names. `process_group`: default:
        all ranks; one that is given needs a backend for the CPU too, where gradients are compressed. Raises InvalidInputError for values out of range.
        """
        if not (_is_number(compression_ratio) and 0 < compression_ratio <= 1):  # NaN is none of both
            raise InvalidInputError(f"compression_ratio={compression_ratio!r} is a share of elements: use a number over 0, up to 1")
        if not (_is_number(bucket_size_mb) and 0 < bucket_size_mb < math.inf):
            raise InvalidInputError(f"bucket_size_mb={bucket_size_mb!r} is a size in MiB: use a number over 0, such as 25")
        self.compression_ratio, self.bucket_size_mb, self.enable_overlap = float(compression_ratio), float(bucket_size_mb), enable_overlap
        self._model = model
        self._seen: dict[str, tuple[weakref.ref[torch.UntypedStorage], int]] = {}  # memory of gradients without a name, by their shape
        self._hierarchies: dict[tuple[dist.ProcessGroup, dist.ProcessGroup], tuple[AxisGroup, AxisGroup]] = {}
        self._step = 0
        self._aborter, self._traffic = GroupAborter(), Traffic((_AXIS,))
        atexit.register(self._aborter.wait_for_threads)
        self._asked = process_group
        self._group: AxisGroup | None = None
        self._reduction: Reduction | None = None
        self._sent = 0.0
        self._joined()  # now, where there is a process group: what cannot be used is refused here

    @property
    def sent_bytes(self) -> float:
        """Return the bytes that this rank has sent so far."""
        self._sent += sum(self._traffic.lap().values())
        return self._sent

    def all_reduce_compressed(self, gradient: Tensor, name: str | None = None) -> Tensor:
        """Replace a gradient, of any shape, by its compressed mean over the ranks, in place, and return it. Collective.

        `name`: tells the gradient from others, so that what is not sent is added to the right one the next time. Without it the `model` that was given
        tells, also of `p.grad.data` and other views of its gradients; else a gradient is told by its shape. Raises InvalidInputError where the last
        gradient of that shape is still in memory elsewhere: of gradients that are freed before the next one comes, two of one shape need names. Gradients
        that are not finite on some rank are summed whole, so that every rank sees it.
        """
        group, reduction = self._joined()
        if group is None or reduction is None:
            return gradient
        self._step += 1
        key = name or self._name_of(gradient)
        flat = gradient.detach().contiguous().view(-1)
        piece = GradientPiece(key, tuple(gradient.shape), 0, flat.numel())
        reduction.sum(GradientBucket(flat, [piece], self._step))
        reduction.commit()
        return self._put_mean(gradient, flat, group.size)

    def hierarchical_all_reduce(self, gradient: Tensor, intra_node_group: dist.ProcessGroup, inter_node_group: dist.ProcessGroup) -> Tensor:
        """Replace a gradient by its exact mean, in place, and return it: summed within each machine, between machines, and shared within. Collective.

        `intra_node_group`: this machine's ranks. `inter_node_group`: the ranks with this one's place on all machines. Every byte crosses a machine's link
        once, whatever the number of ranks there. The first call with two groups checks them: InvalidInputError where machines have unequally many ranks, or
        where a group between machines has ranks of different places.
        """
        flat = gradient.detach().contiguous().view(-1)
        local, across = self._hierarchy_of(intra_node_group, inter_node_group, flat)
        padded = torch.nn.functional.pad(flat, (0, -flat.numel() % local.size))
        own = torch.empty(padded.numel() // local.size, dtype=flat.dtype, device=flat.device)
        if local.size > 1:
            local.reduce_scatter(own, padded)
        else:
            own.copy_(padded)
        if across.size > 1:
            across.sum(own)
        if local.size > 1:
            local.all_gather(padded, own)
        else:
            padded.copy_(own)
        return self._put_mean(gradient, padded[: flat.numel()], local.size * across.size)

    def wrap(self, model: nn.Module) -> DistributedDataParallel:
        """Return the model in torch's DistributedDataParallel, whose buckets are summed compressed; biases, norms and embeddings are sent whole.

        Several models may be wrapped, and each keeps what is not sent of its own gradients; a model that is wrapped again begins anew. Raises
        InvalidInputError without a process group.
        """
        group, _ = self._joined()
        if group is None:
            raise InvalidInputError(
                "wrap needs a process group: call torch.distributed.init_process_group first, or start the script by torchrun"
            )
        wrapped = DistributedDataParallel(model, process_group=group.process_group, bucket_cap_mb=self.bucket_size_mb)
        # A reduction of its own: other models have parameters of the same names.
        pieces, reduction, calls = PieceMaker(model, ()), self._reduction_of(group), Calls()

        def start(bucket: GradBucket) -> torch.futures.Future[Tensor]:
            values, is_last = bucket.buffer(), bucket.is_last()
            made = GradientBucket(values, pieces.pieces(bucket.parameters()), self._step + 1)

            def reduce() -> None:
                reduction.sum(made)
                values.div_(group.size)
                if is_last:
                    reduction.commit()
                    self._step += 1

            future = self._aborter.run_in_order(reduce, calls.begin("sum", values), values)
            if not self.enable_overlap:
                future.wait()
            return future

        wrapped.register_comm_hook(None, lambda _, bucket: start(bucket))
        return wrapped

    def _joined(self) -> tuple[AxisGroup | None, Reduction | None]:
        """Return the group and its reduction, which are made once there is a process group: scripts often make this object before that. Collective."""
        if self._group is None and dist.is_available() and dist.is_initialized():
            group = self._group_of(self._asked)
            self._group, self._reduction = group, self._reduction_of(group)
        return self._group, self._reduction

    def _group_of(self, process_group: dist.ProcessGroup | None) -> AxisGroup:
        # A group of its own, where the loop names none: DDP's and the loop's own calls go on in the world's meanwhile.
        group = process_group or dist.new_group(backend=with_cpu(dist.get_backend_config()))
        assert isinstance(group, dist.ProcessGroup)
        return AxisGroup(_AXIS, dist.get_process_group_ranks(group), dist.get_rank(), group, self._aborter, self._traffic, Calls())

    def _hierarchy_of(self, intra: dist.ProcessGroup, inter: dist.ProcessGroup, flat: Tensor) -> tuple[AxisGroup, AxisGroup]:
        """Return the two groups of a hierarchy, which are checked once. Collective."""
        if (intra, inter) not in self._hierarchies:
            local, across = self._group_of(intra), self._group_of(inter)
            require_hierarchy(local, across, flat.numel(), flat.device)
            self._hierarchies[intra, inter] = local, across
        return self._hierarchies[intra, inter]

    def _reduction_of(self, group: AxisGroup) -> Reduction:
        kind: Compression = "none" if self.compression_ratio == 1 else "top_k"
        backends = dist.get_backend_config(group.process_group)
        if kind == "top_k" and with_cpu(backends) != backends:  # messages of top-k lie in the host's memory
            raise InvalidInputError(
                f'process_group has no backend for the CPU: make it with dist.new_group(backend="{with_cpu(backends)}"), leave process_group out, or use '
                "compression_ratio=1"
            )
        return reduction_for("backend", CompressionOptions(kind, self.compression_ratio, dense_steps=0), ReductionGroups(group))

    def _name_of(self, gradient: Tensor) -> str:
        for name, parameter in self._model.named_parameters() if self._model is not None else ():
            if parameter.grad is not None and _is_one(parameter.grad, gradient):
                return name
        key = f"gradient of shape {tuple(gradient.shape)}"
        now = weakref.ref(gradient.untyped_storage()), gradient.data_ptr()
        storage, address = self._seen.get(key, now)
        if storage() is not None and address != gradient.data_ptr():
            raise InvalidInputError(
                f"two gradients of shape {tuple(gradient.shape)} cannot be told apart, and what is not sent of one would be added to the other: give each "
                "a name=, or give CommunicationOptimizer the model="
            )
        self._seen[key] = now
        return key

    @staticmethod
    def _put_mean(gradient: Tensor, total: Tensor, ranks: int) -> Tensor:
        gradient.detach().copy_((total / ranks).view(gradient.shape))
        return gradient


def with_cpu(backends: str) -> str:
    """Return torch's backends by device, such as "cuda:nccl", with gloo where there is none for the CPU."""
    return backends if "cpu:" in backends else f"cpu:gloo,{backends}"


def _is_one(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors are one gradient, which goes by memory: `p.grad.data` is a new Python object each time."""
    return first.layout == torch.strided and (first.data_ptr(), first.numel()) == (second.data_ptr(), second.numel())


def _is_number(value: object) -> bool:
    return isinstance(value, Real)
