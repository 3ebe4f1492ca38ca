"""Masks secrets in what leaves a node: lines, names, messages. Pure.

A value is looked for as it is, and as programs print it: in JSON, by `repr`, quoted for a URL, in base64 at any place in a longer text, in hexadecimal
digits. Each line of a value of several lines counts by itself. What a program makes of a value in other ways (reversed, compressed, letter by letter)
cannot be found.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

#: What stands in the place of a secret.
MASK = "***"
#: The byte that covers a secret in output, one for one, so that lines keep their places: SUBSTITUTE, which no program prints.
_COVER = b"\x1a"
_COVERED = re.compile("\x1a+")
#: A shorter part of a value tells nothing, and is in too many words.
LEAST_BYTES = 8
#: At the end of what a program has printed so far, as the beginning of a secret that is still to come.
LEAST_BEGINNING = 3
#: The length of lines of encodings, as MIME and `base64` have them.
_WRAPPED = 76
#: A form that spans lines is left out: its lines are looked for one by one, and lines keep their numbers.
_BREAK = re.compile(rb"[\r\n]")
_ELLIPSIS = re.compile(r"(\s*(?:…|\.\.\.)\s*)")


class SecretMask:
    """The secrets of one job. `withheld`: they are not known, so everything is masked."""

    def __init__(self, values: Iterable[str] = (), *, withheld: bool = False) -> None:
        self.values = frozenset(values)
        self.withheld = withheld
        found = {form for value in self.values for form in forms(value) if len(form) >= LEAST_BYTES and not _BREAK.search(form)}
        self._forms = tuple(sorted(found, key=lambda form: (-len(form), form)))
        self.longest = len(self._forms[0]) if self._forms else 0

    def __bool__(self) -> bool:
        return bool(self._forms) or self.withheld

    def __or__(self, other: SecretMask) -> SecretMask:
        return SecretMask(self.values | other.values, withheld=self.withheld or other.withheld)

    # -- bytes of a file

    def cover(self, data: bytes, *, start: int = 0) -> bytes:
        """The bytes from `start` on, of the same length, with secrets covered; what is before them is only looked at. The beginning of a secret at the
        end is covered too: its rest may not be there yet."""
        if self.withheld:
            return re.sub(rb"[^\r\n]", _COVER, data[start:])
        spans = list(self._whole(data))
        for form in self._forms:
            if begun := _beginning_at_end(data, form, LEAST_BEGINNING):
                spans.append((len(data) - begun, len(data)))
        return _covered(data, spans)[start:] if spans else data[start:]

    def is_in(self, data: bytes) -> bool:
        """Whether there is a whole secret in the bytes."""
        return self.withheld or any(form in data for form in self._forms)

    def _whole(self, data: bytes) -> Iterator[tuple[int, int]]:
        for form in self._forms:
            at = data.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = data.find(form, at + 1)

    # -- texts and documents

    def text(self, text: str) -> str:
        """The text with secrets masked, also those that were cut off at either end or at an ellipsis."""
        if self.withheld:
            return MASK if text else text
        if not self._forms:
            return text
        data = text.encode("utf-8", "surrogatepass")
        spans, at = list(self._whole(data)), 0
        for part in _ELLIPSIS.split(text):
            piece = part.encode("utf-8", "surrogatepass")
            for form in self._forms:
                if begun := _beginning_at_end(piece, form, LEAST_BYTES):
                    spans.append((at + len(piece) - begun, at + len(piece)))
                if ended := _end_at_beginning(piece, form):
                    spans.append((at, at + ended))
            at += len(piece)
        return shown(_covered(data, spans).decode("utf-8", "replace")) if spans else text

    def document(self, value: Any) -> Any:
        """A document of plain values with every text in it masked, and every name."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.document(name): self.document(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(each) for each in value]
        return value


def _covered(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    covered = bytearray(data)
    for first, end in spans:
        covered[first:end] = _COVER * (end - first)
    return bytes(covered)


def shown(text: str) -> str:
    """A text of covered bytes as people read it."""
    return _COVERED.sub(MASK, text) if "\x1a" in text else text


def forms(value: str) -> Iterator[bytes]:
    """All the forms in which a value is looked for."""
    texts = {value, *(line.strip() for line in value.splitlines())}
    for text in texts:
        yield text.encode()
        yield json.dumps(text)[1:-1].encode()
        yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
        yield repr(text)[1:-1].encode()
        yield quote(text, safe="").encode()
        yield quote(text).encode()
        yield quote_plus(text).encode()
        yield text.encode().hex().encode()
        yield text.encode().hex().upper().encode()
    for data in {value.encode(), f"{value}\n".encode()}:
        for standard in _in_base64(data):
            yield standard
            yield standard.translate(bytes.maketrans(b"+/", b"-_"))
    whole = base64.b64encode(value.encode())
    yield from (whole[at : at + _WRAPPED] for at in range(0, len(whole), _WRAPPED) if len(whole) > _WRAPPED)


def _in_base64(data: bytes) -> Iterator[bytes]:
    """The digits that depend on the data alone, behind 0, 1 or 2 other bytes."""
    for before in range(3):
        digits = base64.b64encode(b"\0" * before + data)
        yield digits[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]


def _beginning_at_end(data: bytes, form: bytes, least: int) -> int:
    """How many bytes of `form`, at least `least` and not all, stand at the end of `data`."""
    tail = data[-(len(form) - 1) :]
    at = tail.find(form[:least])
    while at >= 0:
        if form.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(form[:least], at + 1)
    return 0


def _end_at_beginning(data: bytes, form: bytes) -> int:
    """How many bytes of the end of `form`, at least LEAST_BYTES and not all, stand at the beginning of `data`."""
    head = data[: len(form) - 1]
    at = head.rfind(form[-LEAST_BYTES:])
    while at >= 0:
        if form.endswith(head[: at + LEAST_BYTES]):
            return at + LEAST_BYTES
        at = head.rfind(form[-LEAST_BYTES:], 0, at + LEAST_BYTES - 1)
    return 0


NOTHING = SecretMask()
WITHHELD = SecretMask(withheld=True)
