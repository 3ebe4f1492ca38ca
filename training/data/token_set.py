"""A folder of token files: what makes it whole, how it is read and checked. No torch in here, since the command line writes them.

manifest.json        written last: a folder without it is an unfinished run
00000.tokens         the ids of all documents of one shard, one after another, little-endian
00000.ends           for each document of the shard the number of tokens up to its end, 8 bytes each
tokenizer.json       of a Hugging Face tokenizer
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from paceline.monitoring.file_hashes import File, describe, has_own_hash, with_own_hash
from paceline.monitoring.files import write_durably
from paceline.training.errors import InvalidInputError

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
FORMAT = 1


class TokenShard(msgspec.Struct, frozen=True, kw_only=True):
    documents: int
    tokens: int
    tokens_file: str
    ends_file: str
    files: dict[str, File]  # these two


class TokenSet(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest of a tokenized data set."""

    format: int = FORMAT
    tokenizer: Literal["bytes", "file"]  # "file": of Hugging Face, in TOKENIZER
    vocabulary: int  # ids are less than this
    end: int  # the id that ends each document
    tokenizer_files: dict[str, File]
    shards: tuple[TokenShard, ...]

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    @property
    def documents(self) -> int:
        return sum(shard.documents for shard in self.shards)

    @property
    def dtype(self) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
        return dtype_of(self.vocabulary)

    @property
    def files(self) -> Mapping[str, File]:
        return {name: file for files in (self.tokenizer_files, *(shard.files for shard in self.shards)) for name, file in files.items()}


class _FormatVersion(msgspec.Struct, frozen=True):
    format: int


def dtype_of(vocabulary: int) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    return np.dtype("<u2") if vocabulary <= 1 << 16 else np.dtype("<u4")


def shard_names(number: int) -> tuple[str, str]:
    """Return the names of a shard's two files: tokens, and ends of documents."""
    return f"{number:05}.tokens", f"{number:05}.ends"


def write(folder: Path, manifest: TokenSet) -> None:
    """The moment at which the folder becomes a token set."""
    write_durably(folder / MANIFEST, with_own_hash(msgspec.json.format(msgspec.json.encode(manifest), indent=2)))


def read(folder: Path) -> TokenSet:
    """Read the manifest. Raises InvalidInputError if there is none, or if any bit of it has changed."""
    try:
        content = (folder / MANIFEST).read_bytes()
        made = msgspec.json.decode(content, type=_FormatVersion).format
        if made != FORMAT:
            raise InvalidInputError(f"{folder / MANIFEST} has format {made}; this version reads {FORMAT}: make the token set again")
        if not has_own_hash(content):
            raise InvalidInputError(f"{folder / MANIFEST} is damaged (it does not match its own SHA-256): copy the token set again")
        return msgspec.json.decode(content, type=TokenSet)
    except OSError as error:
        raise InvalidInputError(f"{folder} is no token set on this machine ({MANIFEST}: {error.strerror}); {_way_out(folder)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{folder / MANIFEST} is no manifest of a token set ({error}); {_way_out(folder)}") from error


def _way_out(folder: Path) -> str:
    return f"make one with `paceline data tokenize INPUT --output {folder}`, finish that run if it broke off, or copy it to every node"


def digest(folder: Path) -> str:
    """Return the SHA-256 of the manifest, and so of all files that it names."""
    return describe(folder / MANIFEST).sha256


def require(folder: Path, sha256: str | None) -> None:
    """Check that this is the wanted token set. Raises InvalidInputError for another."""
    if sha256 is not None and (found := digest(folder)) != sha256:
        raise InvalidInputError(
            f"{folder} on this machine has SHA-256 {found}, not data.sha256={sha256}: copy the same token set to every node, or correct the job"
        )


def check_sizes(folder: Path, token_set: TokenSet) -> None:
    """Quick: finds a copy that broke off. Raises InvalidInputError."""
    for name, file in token_set.files.items():
        try:
            found = (folder / name).stat().st_size
        except OSError as error:
            raise InvalidInputError(f"{folder / name}: {error.strerror}; copy the token set again") from error
        if found != file.bytes:
            raise InvalidInputError(f"{folder / name} has {found} bytes, its manifest says {file.bytes}; copy the token set again")


def check_hashes(folder: Path, token_set: TokenSet) -> Iterator[str]:
    """Reads everything: the name of each file that is as it was written. Raises InvalidInputError at the first that is not."""
    for name, file in token_set.files.items():
        if describe(folder / name) != file:
            raise InvalidInputError(f"{folder / name} does not match the SHA-256 in its manifest: it is damaged; copy it again")
        yield name
