"""How a model of transformers is sharded over the tensor axis: as its own plan says, with torch's styles in the place of the package's.

The package's plan shards heads, feed-forward units and the vocabulary; between them every rank has the whole sequence. Its styles wait for the
process group by themselves and keep parameters plain; ours go along a `AxisGroup` and leave nothing but DTensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.torch_private import own_parameters
from paceline.parallelism.pipelines.chain import has_parameters
from paceline.parallelism.tensor_context.plain_parameters import VocabularyParallel, WholeParameters
from paceline.parallelism.tensor_context.shard_model import CannotShardError, ModelSharding
from paceline.parallelism.tensor_context.tensor_parallel import apply_tensor_parallel, gather_logits
from paceline.training.models.hf.limits import why_not_sharded, without_plan

#: What the package's words for a module stand for.
STYLES: Mapping[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise": RowwiseParallel,
    "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
    "embedding_rowwise": VocabularyParallel,
    "replicated_with_grad_allreduce": lambda: WholeParameters(partial_gradients=True),
    "replicate": WholeParameters,
}
#: What a style shards of a module: the attribute that says how wide it is.
CUT_WIDTHS = {"colwise": "out_features", "rowwise": "in_features", "embedding": "num_embeddings"}


def shard(model: nn.Module, *, tensor: DeviceMesh | None = None, context: AxisGroup | None = None) -> ModelSharding:
    """Shard a model of transformers in place over `tensor`, which is 1-D. Every rank must hold the same parameters; nothing is sent.

    In training mode its logits stay sharded by vocabulary, for the loss; in evaluation mode they come whole.
    """
    assert tensor is not None
    assert context is None  # refused at submit
    config: Any = model.config
    if reason := why_not_sharded(config.get_text_config().to_dict(), tensor.size()):
        raise CannotShardError(reason)
    plan = tensor_plan(model, tensor.size())
    apply_tensor_parallel(model, tensor, {name: style for name, style in plan.items() if has_parameters(model.get_submodule(name))})
    model.get_output_embeddings().register_forward_hook(gather_logits)  # type: ignore[operator]
    return ModelSharding()


def tensor_plan(model: nn.Module, tensor: int) -> dict[str, ParallelStyle]:
    """Return the sharding style of every module that has parameters of its own. Raises CannotShardError."""
    family = str(getattr(model.config, "model_type", type(model).__name__))
    words = dict(words_of_plan(model))
    if not words:
        raise CannotShardError(without_plan(family, tensor))
    if reason := next(unfit(model, words, tensor), None):
        raise CannotShardError(f"tensor={tensor} of {family}: {reason}; leave tensor at 1, or use fsdp for its size")
    whole: dict[str, ParallelStyle] = {
        name: WholeParameters() for name, module in model.named_modules() if own_parameters(module) and name not in words
    }
    plan = {name: STYLES[word]() for name, word in words.items()}
    head: nn.Module = model.get_output_embeddings()  # type: ignore[operator]
    logits = {name: shard_logits() for name, module in model.named_modules() if module is head and name in words}
    return whole | plan | logits


def shard_logits() -> ParallelStyle:
    return ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)


def words_of_plan(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield (a module or a parameter, its style) of the plan's entries. Layers have numbers where the plan has a `*`."""
    plan: Mapping[str, str] = getattr(model, "tp_plan", None) or {}
    for name, _ in [*model.named_modules(), *model.named_parameters()]:
        word = plan.get(re.sub(r"\.\d+(?=\.|$)", ".*", name))
        if word is not None:
            yield name, word


def unfit(model: nn.Module, words: Mapping[str, str], tensor: int) -> Iterator[str]:
    """Hazard: what a plan is silent of, between matrices that it shards, would get the gradients of one rank's heads or units for all."""
    modules = dict(model.named_modules())
    for name, word in words.items():
        width = getattr(modules.get(name), CUT_WIDTHS.get(word.partition("_")[0], ""), tensor)
        if word not in STYLES:
            yield f"its plan has {name} as {word}, which is not offered"
        elif width % tensor:
            yield f"{name} has {width} places, which do not divide"
    inside = tuple(f"{name.rpartition('.')[0]}." for name, word in words.items() if word == "colwise" and "." in name)
    for name, module in modules.items():
        if own_parameters(module) and name not in words and name.startswith(inside):
            yield f"its plan says nothing of {name}, which stands between cut matrices"
