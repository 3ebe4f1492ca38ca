"""Regular expressions over log lines, by RE2: in time linear to the text, whatever the expression is.

Hazard: a backtracking engine would let one request hold the coordinator for hours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import re2

from paceline.db.repositories.logs import LogColumns

#: RE2 refuses what would take more than this.
MEMORY_BYTES = 8 << 20
#: So that ^ and $ are the ends of a line also where several are searched at once.
_PER_LINE = "(?m)"
#: Anchors to the text's beginning or end: such an expression cannot be searched for in several lines at once.
_TEXT_ANCHORS = re.compile(r"\\[AzZ]")


class BadPatternError(ValueError):
    """A regular expression that RE2 does not take, with the reason in words."""


class LinePattern:
    """A regular expression for lines, in any case. Raises BadPatternError."""

    def __init__(self, expression: str) -> None:
        options = re2.Options()
        options.case_sensitive = False
        options.never_nl = True
        options.log_errors = False
        options.max_mem = MEMORY_BYTES
        try:
            self._pattern = re2.compile(_PER_LINE + expression, options)
        except re2.error as error:
            raise BadPatternError(_reason(error)) from None
        self._spans_lines = _TEXT_ANCHORS.search(expression) is None

    def matching(self, lines: Sequence[LogColumns]) -> list[LogColumns]:
        """The lines that match. One search over all of them comes first, since most often none does."""
        texts = [line.text.removeprefix("\r") for line in lines]
        if self._spans_lines and not self._pattern.search("\n".join(texts)):
            return []
        return [line for line, text in zip(lines, texts, strict=True) if self._pattern.search(text)]


def _reason(error: re2.error) -> str:
    """RE2's message in words, with what people most often wish for and it does not have."""
    message = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error.args[0])
    hint = "; lookaround and back-references are not supported" if "perl operator" in message or "escape sequence" in message else ""
    return message.replace(_PER_LINE, "", 1) + hint
