"""How a text finds rows that have a name and an id."""

from __future__ import annotations

from sqlalchemy import ColumnElement, false, or_
from sqlalchemy.orm import InstrumentedAttribute

#: Shorter beginnings are common to all ids of a quarter of an hour.
SHORTEST_BEGINNING_OF_AN_ID = 6


def named_or_begun(text: str, name: InstrumentedAttribute[str], id: InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """Whether the text is a part of the name, in letters of either case, or the beginning of the id."""
    return or_(name.icontains(text, autoescape=True), begins_id(text, id))


def begins_id(text: str, id: InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """Whether the text is the beginning of the id, in letters of either case, and long enough to mean one."""
    return id.startswith(text.upper(), autoescape=True) if len(text) >= SHORTEST_BEGINNING_OF_AN_ID else false()
