"""HTML that is safe by construction: text is escaped unless it was made here. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """HTML that needs no escaping."""

    __slots__ = ()


#: Elements without an end tag.
_VOID = frozenset(("meta", "br", "hr"))


def tag(element: str, /, *children: str | Iterable[str], **attributes: str) -> Markup:
    """An element. Children that are not `Markup` are escaped, and so are attributes; `class_` is written `class`."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    if element in _VOID:
        return Markup(f"<{element}{written}>")
    return Markup(f"<{element}{written}>{join(children)}</{element}>")


def join(children: Iterable[str | Iterable[str]]) -> Markup:
    """The children one behind the other; those that are not `Markup` are escaped."""
    return Markup("".join(_written(child) for child in children))


def _written(child: str | Iterable[str]) -> str:
    if isinstance(child, Markup):
        return child
    return escape(child) if isinstance(child, str) else join(child)
