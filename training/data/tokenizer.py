"""Text to token ids and back: bytes as they are, or a tokenizer of Hugging Face from its JSON file. No torch in here."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.training.data.token_set import TOKENIZER, TokenSet
from paceline.training.errors import InvalidInputError

BYTES = "bytes"
#: What widely used tokenizers call the token that ends a document.
END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>")


class Tokenizer(Protocol):
    """`vocabulary`: ids are less than this. `end`: the id that ends a document; `encode` does not add it."""

    kind: Literal["bytes", "file"]
    vocabulary: int
    end: int

    def encode(self, text: bytes) -> NDArray[Any]:
        """Return the token ids of `text`. Raises UnicodeDecodeError if the tokenizer takes only UTF-8 and `text` is not."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...


class ByteTokenizer:
    """A byte is its own id; 256 ends a document."""

    kind: Literal["bytes", "file"] = "bytes"
    vocabulary, end = 257, 256

    def encode(self, text: bytes) -> NDArray[Any]:
        return np.frombuffer(text, dtype=np.uint8)

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(each if each < self.end else ord("\n") for each in ids).decode("utf-8", errors="replace")


class FileTokenizer:
    """tokenizer.json of a Hugging Face model; needs their `tokenizers` package."""

    kind: Literal["bytes", "file"] = "file"

    def __init__(self, inner: Any, end: int) -> None:
        self._inner, self.end = inner, end
        self.vocabulary = 1 + max(inner.get_vocab(with_added_tokens=True).values())  # its size is less where ids have gaps

    def encode(self, text: bytes) -> NDArray[Any]:
        return np.array(self._inner.encode(text.decode(), add_special_tokens=False).ids, dtype=np.uint32)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._inner.decode(list(ids)))


def open_tokenizer(name: str, end_token: str | None = None) -> Tokenizer:
    """`name`: "bytes", or the path of a tokenizer.json. Raises InvalidInputError."""
    if name != BYTES:
        inner = load(Path(name))
        return FileTokenizer(inner, find_end(inner, name, (end_token,) if end_token else END_TOKENS))
    if end_token is not None:
        raise InvalidInputError(f"end token {end_token!r}: bytes end documents with an id of their own; leave it out")
    return ByteTokenizer()


def tokenizer_of(folder: Path, made: TokenSet) -> Tokenizer:
    """The one that a token set was made with."""
    return ByteTokenizer() if made.tokenizer == "bytes" else FileTokenizer(load(folder / TOKENIZER), made.end)


def find_end(inner: Any, name: str, candidates: Sequence[str]) -> int:
    ids = (inner.token_to_id(candidate) for candidate in candidates)
    end = next((each for each in ids if each is not None), None)
    if end is None:
        raise InvalidInputError(f"{name} knows none of {', '.join(candidates)}: name the token that ends a document with --end-token")
    return int(end)


def load(path: Path) -> Any:
    if not path.is_file():
        raise InvalidInputError(f"tokenizer {path} is no file; give {BYTES!r}, or the path of a Hugging Face tokenizer.json")
    try:
        tokenizers = importlib.import_module("tokenizers")  # an extra: installed where it is wanted
    except ImportError as error:
        raise InvalidInputError(f"{path} needs Hugging Face tokenizers on this machine; run `pip install tokenizers` there") from error
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        raise InvalidInputError(f"{path} is no tokenizer.json of Hugging Face ({error})") from error
