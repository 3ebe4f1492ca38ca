"""How a GPT is cut over the tensor and the context axis: which module how."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, PrepareModuleInput, RowwiseParallel, SequenceParallel

from parallelism.context_parallel import attend
from parallelism.sequence import Contiguous, Cut, HeadTail, SequenceDropout
from parallelism.tensor_parallel import EvenSequences, apply_tensor_parallel
from training.models.gpt.limits import why_not_cut
from training.models.gpt.model import CausalAttention, Gpt, rotate
from training.task import Batch, Loss


class CannotCutError(ValueError):
    """A model whose sizes do not divide by the degrees."""


def shard(model: Gpt, *, tensor: DeviceMesh | None = None, context: DeviceMesh | None = None) -> None:
    """Cut a plain model in place over one or two 1-D meshes. Every rank must hold the same parameters; nothing is sent.

    Over `context` the model is trained on what `on_own_chunks` cuts out of a batch. In evaluation mode it takes whole sequences and
    gives whole logits, as the plain model does: over `tensor` all ranks together, over `context` each rank for itself.
    """
    if reason := why_not_cut(model.spec, tensor=size(tensor), context=size(context)):
        raise CannotCutError(reason)
    cuts: list[Cut] = []
    if context is not None:
        cuts.append(cut_attention(model, context, size(tensor)))
    if tensor is not None:
        cuts.append(Contiguous(tensor.size(), tensor.get_local_rank()))
        apply_tensor_parallel(model, tensor, tensor_plan(len(model.blocks)))
        EvenSequences(tensor.size()).attach(model)
    if cuts:
        cut_dropout(model, cuts)


def size(mesh: DeviceMesh | None) -> int:
    return 1 if mesh is None else mesh.size()


def tensor_plan(layers: int) -> dict[str, ParallelStyle]:
    """Heads, feed-forward units and the vocabulary are cut; between them the sequence is, and norms are whole."""
    plan: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    for layer in range(layers):
        plan |= {f"blocks.{layer}.{name}": style for name, style in block_plan().items()}
    return plan


def block_plan() -> dict[str, ParallelStyle]:
    return {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.output": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
    }


def cut_attention(model: Gpt, context: DeviceMesh, multiple: int) -> HeadTail:
    layout = HeadTail(context.size(), context.get_local_rank(), multiple)
    for name, module in list(model.named_modules()):
        if isinstance(module, CausalAttention):
            model.set_submodule(name, ContextParallelAttention(layout, context.get_group()))
    return layout


def cut_dropout(model: Gpt, cuts: list[Cut]) -> None:
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Dropout) and module.p > 0:
            model.set_submodule(name, SequenceDropout(module.p, cuts))


class ContextParallelAttention(CausalAttention):
    """In training mode, of the chunks that `HeadTail.own` gives this rank."""

    def __init__(self, layout: HeadTail, group: ProcessGroup) -> None:
        super().__init__()
        self.layout, self.group = layout, group

    def forward(self, query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """(2 * batch, heads, chunk, head size) each."""
        if not self.training:
            return super().forward(query, key, value, cosine, sine)
        positions = self.layout.positions(query.shape[2], query.device)
        cosine, sine = cosine[positions][:, None, None], sine[positions][:, None, None]
        query, key, value = (tensor.view(2, -1, *tensor.shape[1:]) for tensor in (query, key, value))
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        return attend(query, key, value, self.layout, self.group).flatten(0, 1)


def on_own_chunks(
    loss: Callable[[nn.Module, Batch], Loss], context: DeviceMesh, tensor: DeviceMesh | None = None
) -> Callable[[nn.Module, Batch], Loss]:
    """A loss over windows (batch, time + 1) made to see this rank's chunks of them while the model trains.

    The mean over all tokens is the mean of the ranks' losses, since chunks are of equal length.
    """
    layout = HeadTail(context.size(), context.get_local_rank(), size(tensor))
    return functools.partial(loss_of_chunks, loss, layout)


def loss_of_chunks(loss: Callable[[nn.Module, Batch], Loss], layout: HeadTail, model: nn.Module, batch: Batch) -> Loss:
    return loss(model, tuple(map(layout.own_windows, batch)) if model.training else batch)
