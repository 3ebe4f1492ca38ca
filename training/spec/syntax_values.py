"""Values in a YAML text: where they end, and usual mistakes in them. `find_mistake` of `syntax.py` reads the lines around them."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_SHOWN = 40
#: What ends a word without quotes: outside of brackets, and within them.
WORD_END = re.compile(r":(?=[ \t\n]|\Z)|[ \t]#|\n|\Z")
_FLOW_WORD_END = re.compile(r":(?=[ \t\n,\[\]{}]|\Z)|[ \t]#|[,\[\]{}\n]|\Z")
BLANKS = re.compile(r"[ \t]*")
_FLOW_BLANKS = re.compile(r"(?:[ \t\n]|(?:(?<=[ \t\n])|(?<=\A))#[^\n]*)*")
_AFTER_QUOTE = re.compile(r"[ \t]*(?:[:,\]}\n]|\Z)|[ \t]+#")
PROPERTY = re.compile(r"(?:[&][\w-]+|![^ \t\n,\[\]{}]*)(?:[ \t]+|(?=\n|\Z))")
_LIKE_A_FIELD = re.compile(r"(?:[A-Za-z_][\w.-]*:|-)(?=[ \n]|\Z)")
_ESCAPES = '0abt\tnvfre "/\\N_LPxuU\n'
CLOSING = {"[": "]", "{": "}"}


class FoundError(Exception):
    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at, self.message = at, message


class UnfamiliarError(Exception):
    """Here is something that is seldom written; only a parser knows whether it is right."""


def place_of(text: str, at: int) -> tuple[int, int]:
    """Line and column, from 1, of an index into a text."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the match of `pattern` at `at` ends; -1 where there is none."""
    found = pattern.match(text, at)
    return found.end() if found else -1


def next_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the next match of `pattern` from `at` on begins; the end of the text where there is none."""
    found = pattern.search(text, at)
    return found.start() if found else len(text)


def word(text: str, at: int, ends: re.Pattern[str]) -> int:
    """The index after a word without quotes, which may have blanks in it."""
    first, following = text[at], text[at + 1 : at + 2]
    if first in "@`%":
        raise FoundError(at, f"a value cannot begin with {first}; put it in quotes: {in_quotes(_rest(text, at, ends))}")
    if first in "*&" and not re.match(r"[\w-]", following):
        raise FoundError(
            at, f"{first} has a meaning of its own at the beginning of a value; put it in quotes: {in_quotes(_rest(text, at, ends))}"
        )
    if first == "?" and following in " \n":
        raise UnfamiliarError
    return next_of(ends, text, at)


def _rest(text: str, at: int, ends: re.Pattern[str]) -> str:
    return shown(text[at : next_of(ends, text, at + 1)])


def line_from(text: str, at: int) -> str:
    return text[at:].partition("\n")[0].rstrip()


def shown(text: str) -> str:
    text = text.strip()
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def in_quotes(text: str) -> str:
    return f'"{text}"' if '"' not in text and "\\" not in text else "'" + text.replace("'", "''") + "'"


def quoted(text: str, start: int) -> int:
    """The index after a text in quotes."""
    quote, at = text[start], start + 1
    while at < len(text):
        following = text[at + 1 : at + 2]
        if quote == '"' and text[at] == "\\":
            if following not in _ESCAPES:
                raise FoundError(
                    at,
                    f"\\{following} means nothing in double quotes; write \\\\ for a backslash, or put the text in single quotes",
                )
            at += 2
        elif text[at] == quote and not (quote == "'" and following == "'"):
            return _closed(text, start, at + 1)
        else:
            at += 2 if text[at] == quote else 1
    raise _unclosed_quote(text, start)


def _unclosed_quote(text: str, start: int) -> FoundError:
    return FoundError(start, f"the quote {text[start]} that opens here is not closed; put another {text[start]} at the end of the value")


def _closed(text: str, start: int, end: int) -> int:
    """Check what follows a closing quote. Returns its index."""
    if _AFTER_QUOTE.match(text, end):
        return end
    if "\n" in text[start:end]:  # it is the opening quote of a later value
        raise _unclosed_quote(text, start)
    double = ", and write '' for an apostrophe within single quotes" if text[start] == "'" else ""
    raise FoundError(end, f"{shown(line_from(text, end))} follows the closing quote; put the whole value into the quotes{double}")


@dataclass
class _Bracket:
    """An open bracket: its index, and what its newest entry has: nothing, a key or an item, the colon after it, or its value too."""

    at: int
    entry: str = "nothing"


class Brackets:
    """Reads what stands in brackets, from `start` to the closing one. `column`: that of the block which they are in."""

    def __init__(self, text: str, start: int, column: int) -> None:
        self.text, self.start, self.column = text, start, column
        self.open: list[_Bracket] = []
        #: The bracket that was open where a line began as a field of the block does.
        self.suspect: int | None = None

    def read(self) -> int:
        """The index after them."""
        at = self.start
        try:
            while at < len(self.text):
                at = self._token(at)
                if not self.open:
                    return at
                at = self._blanks(at)
            raise self._unclosed(self.open[-1].at)
        except FoundError:
            if self.suspect is not None:
                raise self._unclosed(self.suspect) from None
            raise

    def _unclosed(self, at: int) -> FoundError:
        sign = self.text[at]
        return FoundError(at, f"the bracket {sign} that opens here is not closed; put {CLOSING[sign]} at its end")

    def _blanks(self, at: int) -> int:
        end = end_of(_FLOW_BLANKS, self.text, at)
        column = end - self.text.rfind("\n", 0, end) - 1
        if self.suspect is None and "\n" in self.text[at:end] and column <= self.column and _LIKE_A_FIELD.match(self.text, end):
            self.suspect = self.open[-1].at
        return end

    def _token(self, at: int) -> int:
        sign = self.text[at]
        if sign in "]}":
            return self._close(at)
        if sign == ",":
            if self.open[-1].entry == "nothing":
                raise FoundError(at, "nothing stands before this comma; remove it, or put the missing value there")
            self.open[-1].entry = "nothing"
            return at + 1
        if sign == ":" and (self.open[-1].entry == "key" or re.match(r"[ \t\n]|\Z", self.text[at + 1 : at + 2])):
            return self._colon(at)
        if (end := end_of(PROPERTY, self.text, at)) >= 0:
            return end
        return self._value(at)

    def _close(self, at: int) -> int:
        opened = self.open.pop()
        sign, wanted = self.text[opened.at], CLOSING[self.text[opened.at]]
        if self.text[at] != wanted:
            line, column = place_of(self.text, opened.at)
            raise FoundError(at, f"the bracket {sign} of line {line}, column {column} is closed by {self.text[at]}; write {wanted}")
        return at + 1

    def _colon(self, at: int) -> int:
        if self.open[-1].entry in ("colon", "value"):
            raise FoundError(at, "one entry has two colons; put a comma between two entries, or quotes around a value with a colon")
        self.open[-1].entry = "colon"
        return at + 1

    def _value(self, at: int) -> int:
        sign = self.text[at]
        is_word = sign not in "[{\"'"
        if self.open:
            entry = self.open[-1].entry
            if entry in ("key", "value") and not is_word:
                raise FoundError(at, f"a comma is missing before {shown(line_from(self.text, at))}")
            self.open[-1].entry = "value" if entry in ("colon", "value") else "key"
        if sign in CLOSING:
            self.open.append(_Bracket(at))
            return at + 1
        return word(self.text, at, _FLOW_WORD_END) if is_word else quoted(self.text, at)
