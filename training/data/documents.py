"""Where documents come from: text files, one document each, and the lines of JSONL files; cut into portions of about equal size. No torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from paceline.training.errors import InvalidInputError

LINES = (".jsonl", ".ndjson")


class Document(NamedTuple):
    origin: str  # for error messages
    text: bytes


@dataclass(frozen=True)
class DocumentSource:
    """A file: all of it, or of a JSONL file the lines that begin at a byte in [start, end)."""

    path: Path
    start: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.start


Portion = tuple[DocumentSource, ...]


def find(inputs: Sequence[Path], match: str) -> list[Path]:
    """The files that `inputs` name, and in folders those whose name matches, each once. Hidden files and folders are left out."""
    found: dict[Path, None] = {}
    for each in inputs:
        if not each.exists():
            raise InvalidInputError(f"input {each} does not exist")
        for file in walk(each, match) if each.is_dir() else [each]:
            found[file.resolve()] = None
    if not found:
        raise InvalidInputError(f"no file in {', '.join(map(str, inputs))} matches {match!r}")
    return list(found)


def walk(root: Path, match: str) -> Iterator[Path]:
    """Yield the files in the order of their names, the same on every machine."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if fnmatch(name, match) and not name.startswith("."))


def cut(files: Iterable[Path], portion_bytes: int) -> list[Portion]:
    """Whole documents, in their order: about `portion_bytes` of them to a portion."""
    portions: list[list[DocumentSource]] = []
    room = 0
    for source in (part for file in files for part in parts(file, portion_bytes)):
        if not portions or source.bytes > room:
            portions.append([])
            room = portion_bytes
        portions[-1].append(source)
        room -= source.bytes
    return [tuple(portion) for portion in portions]


def parts(file: Path, most: int) -> Iterator[DocumentSource]:
    size = file.stat().st_size
    step = most if file.suffix in LINES else max(size, 1)
    return (DocumentSource(file, start, min(start + step, size)) for start in range(0, size, step))


def documents(source: DocumentSource, field: str) -> Iterator[Document]:
    """Empty ones are left out; `field` is what JSONL files keep the text in. Raises InvalidInputError."""
    found = lines(source, field) if source.path.suffix in LINES else [Document(str(source.path), source.path.read_bytes())]
    return (document for document in found if document.text)


def lines(source: DocumentSource, field: str) -> Iterator[Document]:
    with open(source.path, "rb") as file:
        file.seek(max(0, source.start - 1))
        if source.start:
            file.readline()  # it began before, and belongs to the source before this one
        while (place := file.tell()) < source.end and (line := file.readline()):
            if line.strip():
                origin = f"{source.path}, line at byte {place}"
                yield Document(origin, text_of(line, field, origin))


def text_of(line: bytes, field: str, origin: str) -> bytes:
    try:
        text = json.loads(line)[field]
        if not isinstance(text, str):
            raise InvalidInputError(f"{origin}: field {field!r} holds {type(text).__name__}, not text; name another one with --field")
        return text.encode()
    except ValueError as error:  # no JSON, no UTF-8, or half of a surrogate pair
        raise InvalidInputError(f"{origin}: not readable as JSON text ({error})") from error
    except (KeyError, TypeError) as error:
        raise InvalidInputError(f"{origin}: no field {field!r}; name the one that holds the text with --field") from error
