"""Where a causal language model of transformers may be split into stages: between its layers. The embedding goes with the first stage, norm and head with the last.

A layer takes a mask and positions beside the hidden state. Both follow from the shape of the hidden state alone, since sequences are neither
padded nor packed: so each layer makes its own, as the package's model does for all of them together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from paceline.parallelism.pipelines.chain import Unit, UnsplittableModelError
from paceline.training.models.hf.limits import IN_STAGES, without_stages


def units(model: nn.Module) -> list[Unit]:
    """Return the chain of a model's units. Raises `UnsplittableModelError` for a family that is not known here."""
    config: Any = model.config
    if config.model_type not in IN_STAGES:
        raise UnsplittableModelError(without_stages(config.model_type))
    chain = gpt2_units if config.model_type == "gpt2" else llama_units
    return chain(model)


def llama_units(model: Any) -> list[Unit]:
    """Return the units of a Llama-like model."""
    decoder = model.model
    return [
        Unit((decoder.embed_tokens,), decoder.embed_tokens),
        *(Unit((layer,), functools.partial(run_llama_layer, decoder, layer, number)) for number, layer in enumerate(decoder.layers)),
        Unit((decoder.norm, model.lm_head), lambda hidden: model.lm_head(decoder.norm(hidden))),
    ]


def run_llama_layer(decoder: Any, layer: nn.Module, number: int, hidden: Tensor) -> Tensor:
    positions = positions_of(hidden)
    output: Tensor = layer(
        hidden,
        attention_mask=mask_function(decoder.config, number)(**mask_arguments(decoder.config, hidden, positions)),
        position_ids=positions,
        position_embeddings=decoder.rotary_emb(hidden, position_ids=positions),
        use_cache=False,
    )
    return output


def gpt2_units(model: Any) -> list[Unit]:
    decoder = model.transformer
    return [
        Unit((decoder.wte, decoder.wpe), lambda tokens: decoder.drop(decoder.wte(tokens) + decoder.wpe(positions_of(tokens)))),
        *(Unit((block,), functools.partial(run_gpt2_block, decoder, block)) for block in decoder.h),
        Unit((decoder.ln_f, model.lm_head), lambda hidden: model.lm_head(decoder.ln_f(hidden))),
    ]


def run_gpt2_block(decoder: Any, block: nn.Module, hidden: Tensor) -> Tensor:
    from transformers.masking_utils import create_causal_mask

    positions = positions_of(hidden)
    mask = create_causal_mask(**mask_arguments(decoder.config, hidden, positions))
    output: Tensor = block(hidden, None, mask, use_cache=False, position_ids=positions)
    return output


def positions_of(inputs: Tensor) -> Tensor:
    """Return the positions (1, time) of `inputs`, which are (batch, time, ...)."""
    return torch.arange(inputs.shape[1], device=inputs.device).unsqueeze(0)


def mask_arguments(config: Any, hidden: Tensor, positions: Tensor) -> Mapping[str, Any]:
    return {"config": config, "inputs_embeds": hidden, "attention_mask": None, "past_key_values": None, "position_ids": positions}


def mask_function(config: Any, number: int) -> Callable[..., Tensor | None]:
    """Return the package's function for the mask of layer `number`, which may look back over a window only."""
    from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    slides = kinds[number] == "sliding_attention" if kinds else window is not None
    function: Callable[..., Tensor | None] = create_sliding_window_causal_mask if slides else create_causal_mask
    return function
