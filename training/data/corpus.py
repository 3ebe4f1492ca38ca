"""Text to train a language model on, from whichever source, and how to write more of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.distributed import env
from paceline.objects.location import place_at
from paceline.training.data import stdlib_text, stored_tokens, tokens
from paceline.training.data.token_set import TokenSet
from paceline.training.data.tokenizer import ByteTokenizer, tokenizer_of
from paceline.training.errors import InvalidInputError
from paceline.training.schema.data import StdlibText, Tokens
from paceline.training.schema.object_store import options_of
from paceline.training.task import Dataset

BYTES = 256


@dataclass(frozen=True)
class Corpus:
    train: Dataset
    held_out: Dataset | None
    prompt: Sequence[int]  # what a generated sample begins with
    vocabulary: int  # ids are less than this
    decode: Callable[[Sequence[int]], str]


def open_corpus(data: StdlibText | Tokens, context: int, vocab_size: int, cache: Path) -> Corpus:
    """Samples of context + 1 tokens for a model with room for `vocab_size` ids. Raises InvalidInputError."""
    if isinstance(data, StdlibText):
        if vocab_size < BYTES:
            raise InvalidInputError(
                f"data stdlib_text is made of {BYTES} different bytes, but the model's vocab_size={vocab_size}; use {BYTES} or more"
            )
        train, held_out = stdlib_text.load(data, context, cache)
        return Corpus(train, held_out, prompt=list(b"def "), vocabulary=BYTES, decode=ByteTokenizer().decode)
    place = place_at(data.path)
    if not isinstance(place, Path):
        place = stored_tokens.folder_of(place, options_of(data.options), cache, env.data_cache_bytes(), sha256=data.sha256)
    train_windows, held_out_windows, made = tokens.load(data, context, vocab_size, place)
    decode = functools.partial(decode_with, place, made)
    return Corpus(train_windows, held_out_windows, prompt=[made.end], vocabulary=made.vocabulary, decode=decode)


def decode_with(folder: Path, made: TokenSet, ids: Sequence[int]) -> str:
    """Decode tokens. Where the tokenizer's package is not installed, return the ids and the way out: a sample is not worth a job."""
    try:
        return tokenizer_of(folder, made).decode(ids)
    except InvalidInputError as error:
        return f"{' '.join(map(str, ids))}\n(ids, not text: {error})"
