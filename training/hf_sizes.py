"""How many parameters a causal language model of transformers will have, from its configuration alone: pure, without the package.

Defaults are those of the families' configuration classes in transformers 5.23; a test holds all of this to the built models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

Config = Mapping[str, JsonValue]


class _UnknownError(Exception):
    """A value that this page cannot count with; the rank will say what is wrong with it."""


@dataclass(frozen=True)
class LlamaLike:
    """What the families with gated feed-forwards and grouped queries assume where a configuration says nothing."""

    vocab_size: int = 32_000
    hidden_size: int = 4096
    intermediate_size: int = 11_008
    layers: int = 32
    heads: int = 32
    key_value_heads: int | None = None  # None: as many as heads
    query_key_value_bias: bool = False


LLAMA = LlamaLike()
MISTRAL = LlamaLike(intermediate_size=14_336, key_value_heads=8)
QWEN2 = LlamaLike(vocab_size=151_936, intermediate_size=22_016, key_value_heads=32, query_key_value_bias=True)


def hf_parameters(config: Config) -> int | None:
    """Shared embeddings count once. None for families, or values, that are not known here."""
    count = FAMILIES.get(str(config.get("model_type")))
    try:
        return count(config) if count is not None else None
    except _UnknownError:
        return None


def llama_like(config: Config, default: LlamaLike) -> int:
    hidden = number(config, default.hidden_size, "hidden_size")
    heads = number(config, default.heads, "num_attention_heads")
    head = number(config, hidden // heads, "head_dim")
    keys = number(config, default.key_value_heads or heads, "num_key_value_heads")
    everywhere = flag(config, False, "attention_bias")
    queries, keys_values = hidden * heads * head, 2 * hidden * keys * head
    biases = (heads + 2 * keys) * head if everywhere or default.query_key_value_bias else 0
    attention = 2 * queries + keys_values + biases + (hidden if everywhere else 0)
    width = number(config, default.intermediate_size, "intermediate_size")
    feed_forward = 3 * hidden * width + (2 * width + hidden if flag(config, False, "mlp_bias") else 0)
    layers = number(config, default.layers, "num_hidden_layers")
    embedding = number(config, default.vocab_size, "vocab_size") * hidden
    copies = 1 if flag(config, False, "tie_word_embeddings") else 2
    return layers * (attention + feed_forward + 2 * hidden) + hidden + copies * embedding


def gpt2(config: Config) -> int:
    hidden = number(config, 768, "n_embd", "hidden_size")
    width = number(config, 4 * hidden, "n_inner")
    layers = number(config, 12, "n_layer", "num_hidden_layers")
    attention = 4 * hidden * hidden + 4 * hidden
    feed_forward = 2 * hidden * width + width + hidden
    positions = number(config, 1024, "n_positions", "max_position_embeddings") * hidden
    embedding = number(config, 50_257, "vocab_size") * hidden
    copies = 1 if flag(config, True, "tie_word_embeddings") else 2
    return layers * (attention + feed_forward + 4 * hidden) + 2 * hidden + positions + copies * embedding


FAMILIES: Mapping[str, Callable[[Config], int]] = {
    "llama": lambda config: llama_like(config, LLAMA),
    "mistral": lambda config: llama_like(config, MISTRAL),
    "qwen2": lambda config: llama_like(config, QWEN2),
    "gpt2": gpt2,
}


def number(config: Config, default: int, *names: str) -> int:
    """The first of these that the configuration gives; null means the default."""
    value = next((config[name] for name in names if config.get(name) is not None), default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _UnknownError
    return value


def flag(config: Config, default: bool, name: str) -> bool:
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise _UnknownError
    return value
