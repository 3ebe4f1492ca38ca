"""What a causal language model of transformers is made of, from its configuration alone: pure, without the package.

Defaults are those of the families' configuration classes in transformers 5.23; a test holds all of this to the built models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue

Config = Mapping[str, JsonValue]


class _UnknownError(Exception):
    """A value that this page cannot count with; the rank will say what is wrong with it."""


@dataclass(frozen=True)
class HfSizes:
    parameters: int  # shared embeddings count once
    looked_up: int  # ... those of them that are in no product: tables of tokens and positions
    layers: int
    attention_width: int  # of all heads together


@dataclass(frozen=True)
class LlamaLike:
    """A decoder with gated feed-forwards and grouped queries; by itself, what its family has where a configuration says nothing."""

    vocab_size: int = 32_000
    hidden_size: int = 4096
    intermediate_size: int = 11_008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 0  # 0: as many as heads
    head_dim: int = 0  # 0: what hidden_size has for each head
    query_key_value_bias: bool = False
    attention_bias: bool = False  # of all four
    mlp_bias: bool = False
    query_key_norm: bool = False
    tied: bool = False  # the embeddings

    @property
    def queries(self) -> int:
        """Width of all heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def keys(self) -> int:
        """... of those that queries share; values are as wide."""
        return self.num_key_value_heads * self.head_dim

    @property
    def matrices(self) -> int:
        """Elements of a block's."""
        return 2 * self.hidden_size * (self.queries + self.keys) + 3 * self.hidden_size * self.intermediate_size

    @property
    def vectors(self) -> int:
        """A block's parameters that are in none: norms' weights, biases."""
        biases = self.queries + 2 * self.keys if self.attention_bias or self.query_key_value_bias else 0
        biases += (self.hidden_size if self.attention_bias else 0) + (2 * self.intermediate_size + self.hidden_size if self.mlp_bias else 0)
        return biases + 2 * self.hidden_size + (2 * self.head_dim if self.query_key_norm else 0)

    def of(self, config: Config) -> LlamaLike:
        """Return the sizes with the values that `config` gives, and every default filled in."""
        heads = number(config, self.num_attention_heads, "num_attention_heads")
        hidden = number(config, self.hidden_size, "hidden_size")
        return replace(
            self,
            vocab_size=number(config, self.vocab_size, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=number(config, self.intermediate_size, "intermediate_size"),
            num_hidden_layers=number(config, self.num_hidden_layers, "num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=number(config, self.num_key_value_heads or heads, "num_key_value_heads"),
            head_dim=number(config, self.head_dim or hidden // heads, "head_dim"),
            attention_bias=flag(config, False, "attention_bias"),
            mlp_bias=flag(config, False, "mlp_bias"),
            tied=flag(config, False, "tie_word_embeddings"),
        )


LLAMA_LIKE: Mapping[str, LlamaLike] = {
    "llama": LlamaLike(),
    "mistral": LlamaLike(intermediate_size=14_336, num_key_value_heads=8),
    "qwen2": LlamaLike(vocab_size=151_936, intermediate_size=22_016, num_key_value_heads=32, query_key_value_bias=True),
    "qwen3": LlamaLike(vocab_size=151_936, intermediate_size=22_016, num_key_value_heads=32, head_dim=128, query_key_norm=True),
}


def hf_sizes(config: Config) -> HfSizes | None:
    """Return the sizes of a model of transformers; None for unknown families or values."""
    count = FAMILIES.get(str(config.get("model_type")))
    try:
        return count(config) if count is not None else None
    except _UnknownError:
        return None


def llama_like(config: Config) -> LlamaLike | None:
    """Return the sizes of a Llama-like model; None for another family, or values that are unknown."""
    family = LLAMA_LIKE.get(str(config.get("model_type")))
    try:
        return family.of(config) if family is not None else None
    except _UnknownError:
        return None


def sizes_of_llama_like(config: Config) -> HfSizes:
    model = LLAMA_LIKE[str(config["model_type"])].of(config)
    embedding = model.vocab_size * model.hidden_size
    looked_up = 0 if model.tied else embedding
    blocks = model.num_hidden_layers * (model.matrices + model.vectors)
    return HfSizes(blocks + model.hidden_size + embedding + looked_up, looked_up, model.num_hidden_layers, model.queries)


def sizes_of_gpt2(config: Config) -> HfSizes:
    hidden = number(config, 768, "n_embd", "hidden_size")
    width = number(config, 4 * hidden, "n_inner")
    layers = number(config, 12, "n_layer", "num_hidden_layers")
    attention = 4 * hidden * hidden + 4 * hidden
    feed_forward = 2 * hidden * width + width + hidden
    positions = number(config, 1024, "n_positions", "max_position_embeddings") * hidden
    embedding = number(config, 50_257, "vocab_size") * hidden
    looked_up = positions + (0 if flag(config, True, "tie_word_embeddings") else embedding)
    blocks = layers * (attention + feed_forward + 4 * hidden)
    return HfSizes(blocks + 2 * hidden + embedding + looked_up, looked_up, layers, hidden)


FAMILIES: Mapping[str, Callable[[Config], HfSizes]] = {"gpt2": sizes_of_gpt2} | dict.fromkeys(LLAMA_LIKE, sizes_of_llama_like)


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
