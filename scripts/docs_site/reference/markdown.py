"""Tables and sentences in Markdown, for the pages that are made from the code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a blank line behind it; an empty text without rows."""
    body = ["| " + " | ".join(cell(each) for each in row) + " |" for row in rows]
    if not body:
        return ""
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body]) + "\n\n"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    """Return a description with a capital at its start, unless that is a name."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.islower() and first.isalpha() else text
