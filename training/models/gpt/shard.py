"""How a GPT is sharded over the tensor and the context axis: which module how."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, PrepareModuleInput, RowwiseParallel, SequenceParallel

from paceline.distributed.axis_groups import AxisGroup
from paceline.parallelism.pipelines.chain import has_parameters
from paceline.parallelism.tensor_context.context_parallel import context_attention
from paceline.parallelism.tensor_context.sequence import Contiguous, HeadTail, SequenceDropout, SequenceShard
from paceline.parallelism.tensor_context.shard_model import CannotShardError, ModelSharding, whole_batch
from paceline.parallelism.tensor_context.tensor_parallel import SequencePadding, apply_tensor_parallel, gather_logits
from paceline.parallelism.wrapped import LocalBatch
from paceline.training.models.gpt.limits import why_not_sharded
from paceline.training.models.gpt.model import CausalAttention, Gpt, rotate


def shard(model: nn.Module, *, tensor: DeviceMesh | None = None, context: AxisGroup | None = None) -> ModelSharding:
    """SequenceShard a plain GPT in place over one or two axes; `tensor` is 1-D. Every rank must hold the same parameters; nothing is sent.

    Over `context` the model is trained on `local_batch` of a batch of windows (batch, time + 1): this rank's chunks of them. The mean
    over all tokens is the mean of the ranks' losses, since chunks are of equal length. In evaluation mode it takes whole sequences and gives
    whole logits, as the plain model does: over `tensor` all ranks together, over `context` each rank for itself.
    """
    assert isinstance(model, Gpt)
    ranks = 1 if tensor is None else tensor.size()
    if reason := why_not_sharded(model.spec, tensor=ranks, context=context.size if context else 1):
        raise CannotShardError(reason)
    chunks: tuple[SequenceShard, ...] = ()
    local_batch: LocalBatch = whole_batch
    if context is not None:
        layout = HeadTail(context.size, context.rank, multiple=ranks)
        shard_attention(model, layout, context)
        chunks, local_batch = (layout,), local_windows(layout)
    runs: tuple[SequenceShard, ...] = ()
    padding: SequencePadding | None = None
    if tensor is not None:
        runs, padding = shard_matrices(model, tensor)
    shard_dropout(model, (*chunks, *runs))
    return ModelSharding(local_batch, training=(*chunks, *runs), evaluation=runs, padding=padding)


def shard_matrices(model: Gpt, tensor: DeviceMesh) -> tuple[tuple[SequenceShard, ...], SequencePadding]:
    """Shard the matrices over the tensor axis. Returns (split of the sequence between them, the hooks that make its length divide)."""
    plan = {name: style for name, style in tensor_plan(len(model.blocks)).items() if has_parameters(model.get_submodule(name))}
    apply_tensor_parallel(model, tensor, plan)
    padding = SequencePadding(tensor.size())
    padding.attach(model)
    model.head.register_forward_hook(gather_logits)
    return (Contiguous(tensor.size(), tensor.get_local_rank()),), padding


def local_windows(layout: HeadTail) -> LocalBatch:
    return lambda batch: tuple(map(layout.local_windows, batch))


def tensor_plan(layers: int) -> dict[str, ParallelStyle]:
    """Heads, feed-forward units and the vocabulary are sharded; between them the sequence is, and norms are whole."""
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


def shard_attention(model: Gpt, layout: HeadTail, context: AxisGroup) -> None:
    for name, module in list(model.named_modules()):
        if isinstance(module, CausalAttention):
            model.set_submodule(name, ContextParallelAttention(layout, context))


def shard_dropout(model: Gpt, shards: Sequence[SequenceShard]) -> None:
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Dropout) and module.p > 0:
            model.set_submodule(name, SequenceDropout(module.p, shards))


class ContextParallelAttention(CausalAttention):
    """Attention in training mode over the chunks of the sequence that `HeadTail.local` gives this rank."""

    def __init__(self, layout: HeadTail, axis_group: AxisGroup) -> None:
        super().__init__()
        self.layout, self.axis_group = layout, axis_group

    def forward(self, query: Tensor, key: Tensor, value: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Attend over both chunks; inputs are (2 * batch, heads, chunk, head size)."""
        if not self.training:
            return super().forward(query, key, value, cosine, sine)
        positions = self.layout.positions(query.shape[2], query.device)
        cosine, sine = cosine[positions][:, None, None], sine[positions][:, None, None]
        query, key, value = (tensor.view(2, -1, *tensor.shape[1:]) for tensor in (query, key, value))
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        return context_attention(query, key, value, self.layout, self.axis_group).flatten(0, 1)
