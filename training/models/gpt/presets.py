"""Named sizes of the decoder, from one million parameters to seventy billion. No torch: a spec is read with these on the coordinator.

A name gives the number of parameters, to 5 %. From 124 million on the shapes are GPT-2's and GPT-3's (Radford et al. 2019, Brown et al.
2020, table 2.1) or LLaMA's (Touvron et al. 2023, table 2), with a layer more or less where that comes nearer to the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

Preset = Literal[
    "gpt-1m", "gpt-10m", "gpt-30m", "gpt-124m", "gpt-350m", "gpt-774m", "gpt-1b", "gpt-3b", "gpt-7b", "gpt-13b", "gpt-30b", "gpt-70b"
]

BYTES = 256
#: GPT-2's 50,257 tokens, rounded up so that tensor parallelism can cut them.
GPT2_TOKENS = 50_304


class GptShape(TypedDict):
    layers: int
    heads: int
    dim: int
    context: int
    vocab_size: int
    tied_embeddings: bool


def shape(layers: int, heads: int, dim: int, context: int, vocab_size: int = GPT2_TOKENS, *, tied: bool) -> GptShape:
    return GptShape(layers=layers, heads=heads, dim=dim, context=context, vocab_size=vocab_size, tied_embeddings=tied)


PRESETS: Mapping[Preset, GptShape] = {
    "gpt-1m": shape(4, 4, 144, 256, BYTES, tied=True),
    "gpt-10m": shape(8, 8, 320, 256, BYTES, tied=True),
    "gpt-30m": shape(6, 10, 640, 512, BYTES, tied=True),
    "gpt-124m": shape(12, 12, 768, 1024, tied=True),
    "gpt-350m": shape(24, 16, 1024, 1024, tied=True),
    "gpt-774m": shape(36, 20, 1280, 1024, tied=True),
    "gpt-1b": shape(18, 16, 2048, 2048, tied=True),
    "gpt-3b": shape(36, 20, 2560, 2048, tied=True),
    "gpt-7b": shape(32, 32, 4096, 4096, tied=False),
    "gpt-13b": shape(40, 40, 5120, 4096, tied=False),
    "gpt-30b": shape(48, 56, 7168, 4096, tied=False),
    "gpt-70b": shape(84, 64, 8192, 4096, tied=False),
}
