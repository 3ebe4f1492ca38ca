"""Usual mistakes of people who write YAML, in plain English: what a parser says of them is about its own rules.

The dashboard finds the same mistakes in the same words (`dashboard/src/lib/spec/syntax.ts`); `tests/training/spec/yaml_mistakes.json` holds both to it.
A text that a parser takes has none of them, as far as this reads: what it does not know it leaves to the parser.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from paceline.training.spec.syntax_values import (
    BLANKS,
    CLOSING,
    PROPERTY,
    WORD_END,
    Brackets,
    FoundError,
    UnfamiliarError,
    end_of,
    in_quotes,
    line_from,
    next_of,
    place_of,
    quoted,
    shown,
    word,
)

#: Lists and mappings inside each other that are read here.
DEEPEST = 64
_END_OF_LINE = re.compile(r"[ \t]*(?:\n|\Z)|[ \t]+#|(?<=[ \t])#")
_TEXT_HEADER = re.compile(r"[|>](?:[+-]?[1-9]?|[1-9][+-])[ \t]*(?:\n|\Z|(?<=[ \t])#)")
_MARKS = re.compile(r"(?:<<<<<<<|=======|>>>>>>>)(?=[ \n]|\Z)")


class Mistake(NamedTuple):
    """One mistake in a text: its line and column, from 1, and what to do about it."""

    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


def find_mistake(text: str) -> Mistake | None:
    """The first usual mistake in a text that is no YAML; None: it is an unusual one."""
    text = text.replace("\r\n", "\n")
    try:
        _Lines(text).read()
    except FoundError as found:
        line, column = place_of(text, found.at)
        return Mistake(line, column, found.message)
    except UnfamiliarError:
        pass
    return None


class _Level(NamedTuple):
    column: int
    kind: str


class _Lines:
    """A text line by line: which lists and mappings are open, and what the newest line has left: a name or a dash without a value (`open`), a word
    that may go on (`word`), a line without a name (`text`), or a value that is complete (`closed`)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.levels: list[_Level] = []
        self.left = "open"
        #: Where the line without a name begins.
        self.lone = 0
        #: Lines deeper than this are a text in a block (`|` or `>`).
        self.text_column: int | None = None

    def read(self) -> None:
        at = 0
        while at < len(self.text):
            after = self._line(at)
            at = self.text.find("\n", after) + 1 or len(self.text)

    def _column(self, at: int) -> int:
        return at - self.text.rfind("\n", 0, at) - 1

    def _innermost(self) -> int:
        return self.levels[-1].column if self.levels else -1

    def _line(self, start: int) -> int:
        """Read the line that begins at `start`. Returns an index in the last line that was read."""
        at = end_of(BLANKS, self.text, start)
        if self.text[at : at + 1] in ("", "\n", "#"):
            return at
        if self.text_column is not None and at - start > self.text_column:
            return at
        self.text_column = None
        self._check_beginning(start, at)
        if self.text.startswith("---", start) and _END_OF_LINE.match(self.text, start + 3):
            return at
        if self.left in ("word", "text") and at - start > self._innermost():
            end = next_of(WORD_END, self.text, at)
            return self._named(at, end) if self.text[end : end + 1] == ":" else at
        return self._content(at)

    def _check_beginning(self, start: int, at: int) -> None:
        if (tab := self.text.find("\t", start, at)) >= 0:
            raise FoundError(tab, "a tab stands where the line is indented; YAML takes spaces only: replace it, best by two of them")
        if _MARKS.match(self.text, start):
            raise FoundError(start, f"{self.text[start : start + 7]} is a mark of a merge conflict in git; resolve it, and remove the line")
        if self.text.startswith("```", at):
            raise FoundError(at, "``` is a mark of Markdown; remove the line")
        if self.text.startswith(("---", "..."), start) and _END_OF_LINE.match(self.text, start + 3):
            if self.levels or self.left != "open":
                raise FoundError(
                    start, f"{self.text[start : start + 3]} ends the document; one is read here: remove what does not belong to it"
                )
        elif self.text[start] == "%":
            raise FoundError(start, "a line cannot begin with %; put quotes around a name that does, or write # for a comment")

    def _content(self, at: int) -> int:
        """Read from the first sign of a line, or the first after a dash."""
        while self.text[at] == "-" and self.text[at + 1 : at + 2] in ("", " ", "\t", "\n"):
            self._enter("list", at)
            at = end_of(BLANKS, self.text, at + 1)
            if self._is_end(at):
                return at
        begin, at = at, max(at, end_of(PROPERTY, self.text, at))
        if self._is_end(at):
            return at
        if self.text[at] in "|>":
            return self._text_block(at)
        end, is_word = self._node(at)
        colon = end_of(BLANKS, self.text, end)
        if self.text[colon : colon + 1] == ":" and (not is_word or colon == end or self.text[colon + 1 : colon + 2] in ("", " ", "\n")):
            return self._named(begin, colon)
        if is_word:
            self._take_lone_text(at)
        else:
            self._check_after(at, end)
        return end

    def _is_end(self, at: int) -> bool:
        return self.text[at : at + 1] in ("", "\n") or bool(_END_OF_LINE.match(self.text, at))

    def _node(self, at: int) -> tuple[int, bool]:
        """The index after the value at `at`, and whether it is a word without quotes."""
        sign = self.text[at]
        if sign in "\"'":
            return quoted(self.text, at), False
        if sign in CLOSING:
            return Brackets(self.text, at, self._innermost()).read(), False
        if sign in "]},":
            raise self._stray(at)
        return word(self.text, at, WORD_END), True

    def _stray(self, at: int) -> FoundError:
        sign = self.text[at]
        if sign == ",":
            return FoundError(at, "a comma stands after a value that is in no brackets; remove it")
        return FoundError(at, f"the bracket {sign} closes none that is open; remove it, or open one before")

    def _named(self, begin: int, colon: int) -> int:
        """Read a field whose name begins at `begin` and ends before `colon`."""
        self._enter("mapping", begin)
        at = end_of(BLANKS, self.text, colon + 1)
        at = max(at, end_of(PROPERTY, self.text, at))
        if self._is_end(at):
            self.left = "open"
            return at
        if self.text[at] in "|>":
            return self._text_block(at)
        if self.text[at] == "-" and self.text[at + 1 : at + 2] in ("", " ", "\n"):
            raise FoundError(at, "a list cannot begin beside its name; begin it on the next line, or write it in brackets: [a, b]")
        end, is_word = self._node(at)
        if not is_word:
            self._check_after(at, end)
        elif self.text[end : end + 1] == ":":
            value = shown(line_from(self.text, at))
            raise FoundError(at, f"the value {value} has a colon before a blank; put it in quotes: {in_quotes(value)}")
        else:
            self.left = "word"
        return end

    def _text_block(self, at: int) -> int:
        if not _TEXT_HEADER.match(self.text, at):
            value = shown(line_from(self.text, at))
            raise FoundError(
                at, f"{self.text[at]} begins a text on the following lines; put it there, or the value in quotes: {in_quotes(value)}"
            )
        self.left, self.text_column = "closed", self._innermost()
        return at

    def _check_after(self, start: int, end: int) -> None:
        """Check what follows a value in quotes or brackets."""
        self.left = "closed"
        at = end_of(BLANKS, self.text, end)
        if self._is_end(at):
            return
        if self.text[at] in "]},":
            raise self._stray(at)
        if self.text[start] in CLOSING:
            raise FoundError(at, f"{shown(line_from(self.text, at))} follows the closing bracket; remove it, or put it into the brackets")
        raise FoundError(at, f"{shown(line_from(self.text, at))} follows the closing quote; put the whole value into the quotes")

    def _leave(self, column: int) -> bool:
        """Close what is indented deeper than `column`. Returns whether there was any."""
        before = len(self.levels)
        while self._innermost() > column:
            self.levels.pop()
        return len(self.levels) < before

    def _enter(self, kind: str, at: int) -> None:
        """Begin an entry of a list or a field of a mapping, which may be the first one."""
        column, left, columns = self._column(at), self.left, {each.column for each in self.levels}
        if len(self.levels) >= DEEPEST:
            raise UnfamiliarError
        has_left, self.left = self._leave(column), "open"
        if self._innermost() == column:
            self._go_on(kind, at, column, may_begin=left == "open" and not has_left)
        elif has_left:
            known = " or ".join(str(each + 1) for each in sorted(columns))
            raise FoundError(at, f"this line begins at column {column + 1}, where no other does; the ones above begin at {known}: align it")
        elif left == "text":
            raise FoundError(self.lone, _of_lone_text(line_from(self.text, self.lone)))
        elif left == "open":
            self.levels.append(_Level(column, kind))
        elif kind == "mapping":
            raise FoundError(at, "this line is indented deeper than the one above, which has a value; align them, or remove that value")
        else:
            raise UnfamiliarError

    def _go_on(self, kind: str, at: int, column: int, *, may_begin: bool) -> None:
        """Go on in the list or mapping at the same column, or begin a list below a name without indenting it. `may_begin`: the newest line ended so."""
        if self.levels[-1].kind == kind:
            return
        if kind == "list" and may_begin:
            self.levels.append(_Level(column, kind))
        elif kind == "mapping" and self.levels[-2:-1] == [_Level(column, "mapping")]:
            self.levels.pop()
        elif kind == "list":
            raise FoundError(at, "this line begins with a dash, and the ones beside it with names; indent the list below its name")
        else:
            raise FoundError(
                at, "this line begins with a name, and the ones beside it with dashes; align it with the field that it belongs to"
            )

    def _take_lone_text(self, at: int) -> None:
        """Take a line that has no name: the value of the line above, or a mistake."""
        column, left = self._column(at), self.left
        has_left = self._leave(column)
        if has_left or self._innermost() == column:
            raise FoundError(at, _of_lone_text(line_from(self.text, at)))
        if left == "closed":
            raise UnfamiliarError
        self.left, self.lone = "text", at


def _of_lone_text(line: str) -> str:
    """What is wrong with a line that has no name before a colon."""
    told = shown(line)
    if found := re.match(r"([\w.-]+):(\S.*)", line):
        return f"{told} has no space after its colon; write {found[1]}: {shown(found[2])}"
    if found := re.match(r"([\w.-]+)\s*=\s*(\S.*)", line):
        return f"{told} has no colon; write {found[1]}: {shown(found[2])}"
    if found := re.fullmatch(r"([\w.-]+)\s+(\S+)", line):
        return f"{told} has no colon after the name; write {found[1]}: {shown(found[2])}"
    if re.fullmatch(r"[\w.-]+", line):
        return f"{told} has no colon; write {told}: and its value or, below, its fields"
    return f"{told} is no field, which is a name, a colon, a space and a value; put a text of several words in quotes after its name"
