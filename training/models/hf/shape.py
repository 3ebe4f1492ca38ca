"""A model of transformers as the planner knows it, by its configuration alone: of the llamas and their like. Pure; see `decoder.py`."""

from __future__ import annotations

from paceline.parallelism.model_shape import ModelShape, NumberFormats
from paceline.training.models.decoder import Decoder
from paceline.training.models.hf.config import HfModel
from paceline.training.models.hf.sizes import LLAMA_LIKE, Config, LlamaLike, llama_like

#: What else would be computed, and kept, than is counted here: values that a configuration has where it has them at all.
ORDINARY = {"hidden_act": "silu", "attention_dropout": 0, "attn_implementation": "sdpa", "_attn_implementation": "sdpa"}
#: Tokens that attention looks back, of families that do so by default.
WINDOWS = {"mistral": 4096}
FAMILIES = tuple(LLAMA_LIKE)


def shape(model: HfModel, numbers: NumberFormats) -> ModelShape | None:
    """Return the model's shape; None for a folder on the nodes, an unknown family, or a configuration that computes otherwise."""
    known = llama_like(model.config) if model.config is not None else None
    if model.config is None or known is None or not is_ordinary(model.config, model.context):
        return None
    return decoder_of(known, model.context).shape(numbers)


def is_ordinary(config: Config, context: int) -> bool:
    """A window that is shorter than the context makes a mask, and another kernel."""
    window = config.get("sliding_window", WINDOWS.get(str(config["model_type"])))
    windowed = window is not None and (not isinstance(window, int) or window < context)
    return not windowed and all(config.get(name) in (None, value) for name, value in ORDINARY.items())


def decoder_of(sizes: LlamaLike, context: int) -> Decoder:
    return Decoder(
        context=context,
        vocabulary=sizes.vocab_size,
        layers=sizes.num_hidden_layers,
        dim=sizes.hidden_size,
        heads=sizes.num_attention_heads,
        queries=sizes.queries,
        keys=sizes.keys,
        width=sizes.intermediate_size,
        vectors=sizes.vectors,
        tied=sizes.tied,
        one_norm_kernel=False,
        normed_heads=sizes.query_key_norm,
        parts_have_sequences=True,
    )
