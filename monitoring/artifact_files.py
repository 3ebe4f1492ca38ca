"""Files that a job leaves in $PACELINE_ARTIFACTS: their limits, their names at the coordinator, and how an agent offers them.

Names and contents come from code that nobody has checked. The path of a file in its job is its identity: the newest version of it is kept.
"""

from __future__ import annotations

import hashlib
import os
import re

import msgspec

#: The most of one file and of all files of a job together, and how many of them are kept.
MAX_FILE_BYTES = 4 << 30
MAX_JOB_FILE_BYTES = 16 << 30
MAX_JOB_FILES = 20_000
#: The longest path of a file in its job, and the most folders in such a path.
MAX_PATH_CHARACTERS = 1024
MAX_DEPTH = 32
#: Files up to this size travel within their offer, so many bytes and files at most in one.
INLINE_BYTES = 64 << 10
BATCH_BYTES = 512 << 10
BATCH_FILES = 32
#: Files and folders of such names are being written: see `paceline.log_artifact`.
UNFINISHED_PREFIX = ".paceline-"

Content = bytes  # the fields below have that name
_HEXADECIMAL = re.compile(r"[0-9a-f]{64}")
#: Categories whose characters are shown nowhere, though a name may need them: the joiners of scripts and of emoji.
_JOINERS = frozenset("\u200c\u200d")


class OfferedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a file. `content`: all of it, if it is small."""

    path: str  # in the job, of printable characters: rank0/eval/scores.csv
    bytes: int
    sha256: str
    changed_ns: int  # st_ctime_ns, which the program cannot set: of two nodes' versions the later one counts
    content: Content | None = None

    @property
    def version(self) -> str:
        """The key of this version: the same for the same offer, so that offering it twice is harmless."""
        return hashlib.sha256(f"{self.path}\0{self.sha256}\0{self.changed_ns}".encode()).hexdigest()


class FilesOffer(msgspec.Struct, frozen=True, kw_only=True):
    """POST ARTIFACT_FILES_PATH: files of the rank that started in this place. Harmless again."""

    job_id: str
    generation: int
    rank: int
    files: tuple[OfferedFile, ...]


class FileReceived(msgspec.Struct, frozen=True, kw_only=True):
    """State of one offered file. `next_chunk`: what the coordinator wants of it; None: no more. `refused`: why it is not kept."""

    id: str = ""
    next_chunk: int | None = None
    refused: str | None = None


class FilesReceived(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `FilesOffer`, file by file in its order."""

    files: tuple[FileReceived, ...]


def printable(name: str) -> str:
    """Return a file's name with each character that is not printable, and each byte that is no text, as %XX."""
    return "".join(
        character if character.isprintable() or character in _JOINERS else "".join(f"%{byte:02X}" for byte in os.fsencode(character))
        for character in name
    )


def path_refusal(path: str) -> str | None:
    """Return why no file may have this path in a job, or None."""
    parts = path.split("/")
    if len(path) > MAX_PATH_CHARACTERS:
        return f"its path has {len(path):,} characters; the limit is {MAX_PATH_CHARACTERS:,}: use shorter names"
    if len(parts) > MAX_DEPTH:
        return f"it lies {len(parts):,} folders deep; the limit is {MAX_DEPTH}: use fewer folders"
    if any(part in ("", ".", "..") or printable(part) != part for part in parts):
        return "its path has an empty name, a dot for a name, or characters that cannot be printed"
    return None


def is_sha256(text: str) -> bool:
    return _HEXADECIMAL.fullmatch(text) is not None
