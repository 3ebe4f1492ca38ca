"""Windows over memory-mapped token files."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.training.data import token_set, tokens
from paceline.training.data.corpus import decode_with
from paceline.training.data.tokens import TokenWindows
from paceline.training.errors import InvalidInputError
from paceline.training.schema.data import Tokens
from tests.training.data.token_sets import make, write_texts

CONTEXT = 16
VOCABULARY = 257


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A token set of 200 documents in many shards, and their texts."""
    folder = tmp_path_factory.mktemp("tokens")
    texts = write_texts(folder / "in", 200)
    make(folder / "out", [folder / "in"], portion_bytes=1500)
    return folder / "out", texts


def load(folder: Path, context: int = CONTEXT, **changes: Any) -> tuple[TokenWindows, TokenWindows | None]:
    return tokens.load(Tokens(path=str(folder), **changes), context, VOCABULARY)[:2]


def read_all(windows: TokenWindows) -> list[int]:
    """Its text again, from windows that overlap by one token."""
    (batch,) = windows.batch(torch.arange(len(windows)), None)
    assert torch.equal(batch[:-1, -1], batch[1:, 0])
    return [*batch[:, :-1].flatten().tolist(), int(batch[-1, -1])]


def documents_in(ids: list[int]) -> list[bytes]:
    """Whole documents: what follows the last end is a piece of one."""
    ends = [-1, *(place for place, token in enumerate(ids) if token == 256)]
    return [bytes(ids[start + 1 : end]) for start, end in pairwise(ends)]


def test_without_a_holdout_the_windows_are_the_whole_text(written: tuple[Path, list[bytes]]) -> None:
    folder, texts = written
    train, held_out = load(folder, holdout=0)
    assert held_out is None
    text = [token for document in texts for token in [*document, 256]]
    assert len(train) == (len(text) - 1) // CONTEXT
    assert read_all(train) == text[: len(train) * CONTEXT + 1]
    (batch,) = train.batch(torch.tensor([3, 0]), None)
    assert (batch.shape, batch.dtype) == ((2, CONTEXT + 1), torch.int64)


def test_documents_are_held_out_whole_and_nowhere_else(written: tuple[Path, list[bytes]]) -> None:
    folder, texts = written
    train, held_out = load(folder, holdout=0.2)
    assert held_out is not None
    trained, evaluated = documents_in(read_all(train)), documents_in(read_all(held_out))
    assert train.runs.tokens + held_out.runs.tokens == sum(len(text) + 1 for text in texts)
    assert not set(trained) & set(evaluated)
    assert set(trained) | set(evaluated) <= set(texts)
    assert len(texts) - 4 <= len(trained) + len(evaluated) <= len(texts)  # the last ones may not fill a window
    assert 0.1 < len(evaluated) / len(texts) < 0.3


def test_a_larger_holdout_only_moves_more_documents(written: tuple[Path, list[bytes]]) -> None:
    folder, _ = written
    smaller, larger = (load(folder, holdout=holdout)[1] for holdout in (0.1, 0.3))
    assert smaller is not None
    assert larger is not None
    assert set(documents_in(read_all(smaller))[:-2]) < set(documents_in(read_all(larger)))


def test_one_long_window_over_many_documents_and_shards(written: tuple[Path, list[bytes]]) -> None:
    folder, _ = written
    short, long = load(folder, holdout=0)[0], load(folder, context=2000, holdout=0)[0]
    assert read_all(long) == read_all(short)[: len(long) * 2000 + 1]


def test_files_are_mapped_not_read(written: tuple[Path, list[bytes]]) -> None:
    train, _ = load(written[0])
    assert all(isinstance(shard, np.memmap) and shard.mode == "r" for shard in train.tokens)


def test_a_model_with_too_few_ids_is_told_both_numbers(written: tuple[Path, list[bytes]]) -> None:
    with pytest.raises(InvalidInputError, match=r"vocabulary of 257 tokens, more than model.vocab_size=256; set it to 257 or more"):
        tokens.load(Tokens(path=str(written[0])), CONTEXT, 256)


def test_a_folder_that_is_not_there_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"nowhere is no token set on this machine .*paceline data tokenize INPUT --output .*every node"
    ):
        load(tmp_path / "nowhere")


def test_too_little_text_is_told_in_numbers(written: tuple[Path, list[bytes]]) -> None:
    folder, _ = written
    with pytest.raises(InvalidInputError, match=r"tokens to train on, fewer than one window of context=100000"):
        load(folder, context=100_000)
    with pytest.raises(InvalidInputError, match=r"holdout=0.0001 of the 200 documents .* leaves 0 tokens to evaluate on"):
        load(folder, holdout=0.0001)


def test_damage_is_found_by_size_at_once_and_by_hash_when_asked(written: tuple[Path, list[bytes]], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(written[0], folder)
    shard = folder / token_set.read(folder).shards[2].tokens_file
    content = bytearray(shard.read_bytes())
    content[0] ^= 1
    shard.write_bytes(content)
    load(folder)
    with pytest.raises(InvalidInputError, match=r"00002.tokens does not match"):
        load(folder, verify=True)
    load(written[0], verify=True)
    shard.write_bytes(content[:-1])
    with pytest.raises(InvalidInputError, match="copy the token set again"):
        load(folder)


def test_a_sample_is_text_or_says_what_is_missing(written: tuple[Path, list[bytes]]) -> None:
    folder, _ = written
    made = token_set.read(folder)
    assert decode_with(folder, made, [256, 65, 66]) == "\nAB"
    lost = token_set.TokenSet(tokenizer="file", vocabulary=300, end=0, tokenizer_files={}, shards=made.shards)
    assert decode_with(folder, lost, [0, 7]).startswith("0 7\n(ids, not text: ")


def test_a_relative_path_is_refused_at_submit() -> None:
    with pytest.raises(ValueError, match=r"data.path=tokens is not an absolute path"):
        Tokens(path="tokens")


def test_a_node_with_another_set_than_the_job_names_refuses(written: tuple[Path, list[bytes]]) -> None:
    folder, _ = written
    load(folder, sha256=token_set.digest(folder))
    with pytest.raises(InvalidInputError, match=rf"has SHA-256 {token_set.digest(folder)}, not data.sha256=00000"):
        load(folder, sha256="0" * 64)
