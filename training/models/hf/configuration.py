"""The limits of a model's configuration that is handed on to transformers as it is: any names, so what is said of all values. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

MAX_DEPTH = 8
MAX_VALUES = 4096
LONGEST_TEXT = 4096
#: What a number of JSON can say exactly, in every language.
LARGEST = 1 << 53
#: Sizes that decide how much there is to compute and to build, under all the names that families have for them.
LIMITS: Mapping[str, int] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "num_attention_heads", "num_key_value_heads", "n_head"), 1024),
    **dict.fromkeys(("hidden_size", "n_embd", "intermediate_size", "n_inner", "head_dim", "d_model", "d_ff"), 1 << 20),
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "n_positions"), 1 << 24),
}


def why_not_a_configuration(config: Mapping[str, JsonValue]) -> str | None:
    """The first thing that is wrong, with its limit; None: nothing is."""
    for count, (where, depth, value) in enumerate(_values(config)):
        if count >= MAX_VALUES:
            return f"it has more than {MAX_VALUES} values"
        if depth > MAX_DEPTH:
            return f"{where[:80]!r} is nested deeper than {MAX_DEPTH} levels"
        if reason := _why_not_value(where, value):
            return reason
    return None


def _values(config: Mapping[str, JsonValue]) -> Iterator[tuple[str, int, JsonValue]]:
    """(its name, how deep it lies, the value) of each value and, as a text, of each name; nothing is opened before it was handed out."""
    waiting: list[tuple[str, int, JsonValue]] = [(name, 1, value) for name, value in config.items()]
    while waiting:
        name, depth, value = found = waiting.pop()
        yield found
        yield name, depth, name
        if isinstance(value, dict):
            waiting += [(inner, depth + 1, each) for inner, each in value.items()]
        elif isinstance(value, list):
            waiting += [(name, depth + 1, each) for each in value]


def _why_not_value(name: str, value: JsonValue) -> str | None:
    shown = repr(name[:80])
    if isinstance(value, str) and ("\0" in value or len(value) > LONGEST_TEXT):
        return f"{shown} has a NUL character, or over {LONGEST_TEXT} characters"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{shown} is {value}, not a finite number"
    if isinstance(value, int) and abs(value) > LIMITS.get(name, LARGEST):
        digits = str(value) if abs(value) <= LARGEST else "a number over 2^53"
        return f"{shown} is {digits}; at most {LIMITS.get(name, LARGEST)} is taken"
    return None
