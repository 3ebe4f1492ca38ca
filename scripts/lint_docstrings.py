"""Docstrings that can be read alone, in an editor's hover: not a continuation of the name, and with a noun for a subject."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

MIN_WORDS = 4
#: The name of a test says what it holds.
OUTSIDE = ("tests/",)

_PERSONAL = r"it|its|they|them|their|theirs|he|his|she|her|we|us|our|ours|you|your|yours|i|my"
_OTHER = r"that|those|these|such|who|whose|whom|whoever|whichever|whatever|nobody|somebody|anybody|everybody|no one|someone|anyone|everyone|the others?"
_CONTINUATION = r"of|with|the same|once|none"
_QUESTION = r"what|which"
_BAD_START = re.compile(rf"(?:{_PERSONAL}|{_OTHER}|{_CONTINUATION})\b", re.IGNORECASE)
_QUESTION_START = re.compile(rf"(?:{_QUESTION})\b", re.IGNORECASE)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def check(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and message for each public docstring of a Python file that cannot be read alone.

    Public are modules, and functions, classes and methods without a leading underscore in their own and their class's name. "What ..." and
    "Which ..." may begin a module's docstring, which is a title, but no other.
    """
    if not path.startswith(OUTSIDE):
        for node, name in _public(tree, path):
            text = ast.get_docstring(node)
            problem = None if text is None else _problem(text, is_title=isinstance(node, ast.Module))
            if problem is not None:
                yield 1 if isinstance(node, ast.Module) else node.lineno, f"docstring of {name}: {problem}"


def _public(node: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[Documented, str]]:
    yield node, name
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            inner = child.name if isinstance(node, ast.Module) else f"{name}.{child.name}"
            if isinstance(child, ast.ClassDef):
                yield from _public(child, inner)
            else:
                yield child, inner


def _problem(text: str, *, is_title: bool) -> str | None:
    if len(text.split()) < MIN_WORDS:
        return f"fewer than {MIN_WORDS} words"
    start = _BAD_START.match(text) or (None if is_title else _QUESTION_START.match(text))
    return None if start is None else f'begins with "{start.group()}": begin with a verb, or with the noun that it is about'
