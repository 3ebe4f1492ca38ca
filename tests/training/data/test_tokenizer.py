from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.training.data import token_set
from paceline.training.data.tokenize import TokenizeRecipe
from paceline.training.data.tokenizer import ByteTokenizer, open_tokenizer, tokenizer_of
from paceline.training.errors import InvalidInputError
from tests.training.data.token_sets import make, write_texts


def test_bytes_are_their_own_ids_and_back() -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode("día".encode()).tolist()
    assert ids == list("día".encode())
    assert tokenizer.decode([*ids, tokenizer.end, 65]) == "día\nA"
    assert tokenizer.decode([0xC3]) == "�"


def test_without_the_package_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="pip install tokenizers"):
        open_tokenizer(str(tmp_path / "tokenizer.json"))


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no file; give 'bytes'"):
        open_tokenizer("gpt2")
    with pytest.raises(InvalidInputError, match="leave it out"):
        open_tokenizer("bytes", "</s>")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A byte-level BPE of Hugging Face, trained on the spot."""
    tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face tokenizers is an extra: pip install tokenizers")
    inner: Any = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(["so on and on"] * 20, trainer)
    inner.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_tokenizer_file_makes_a_set_that_carries_it_along(tmp_path: Path, trained: Path) -> None:
    written = write_texts(tmp_path / "in", 5)
    made = make(tmp_path / "out", [tmp_path / "in"], recipe=TokenizeRecipe(str(trained), None, "text"))
    assert made == token_set.read(tmp_path / "out")
    trained.unlink()  # it is not needed any more
    tokenizer = tokenizer_of(tmp_path / "out", made)
    ids = np.fromfile(tmp_path / "out" / made.shards[0].tokens_file, dtype=made.dtype)
    assert made.tokens == len(ids) < sum(map(len, written))
    first = ids.tolist().index(made.end)
    assert tokenizer.decode(ids[:first].tolist()) == written[0].decode()
    assert ids.max() < made.vocabulary


def test_the_token_that_ends_a_document_must_be_known(trained: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"knows none of </end>: name .* --end-token"):
        open_tokenizer(str(trained), "</end>")
    assert open_tokenizer(str(trained)).end == 0


def test_text_that_is_no_utf8_is_named(tmp_path: Path, trained: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(InvalidInputError, match=r"latin.txt is not UTF-8 text"):
        make(tmp_path / "out", [tmp_path / "latin.txt"], recipe=TokenizeRecipe(str(trained), None, "text"))


def test_a_file_of_another_kind_is_refused(trained: Path) -> None:
    trained.write_text('{"no": "tokenizer"}')
    with pytest.raises(InvalidInputError, match=r"is no tokenizer.json"):
        open_tokenizer(str(trained))
