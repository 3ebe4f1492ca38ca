"""Opaque keyset cursors: the sort key of the last row, in base64url JSON. They stay right while rows come and go."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from fastapi import Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from paceline.api.core import lists
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Page

Row = TypeVar("Row")
Item = TypeVar("Item")
AnyPage = TypeVar("AnyPage", bound=BaseModel)
Key = str | int | float

Cursor = Annotated[str | None, Query(description="opaque keyset cursor", max_length=1000)]
Limit = Annotated[int, Query(ge=1, le=200)]
Fields = Annotated[str | None, Query(description="of each item, these alone, comma-separated; default: all", max_length=1000)]


def encode(key: Sequence[Key]) -> str:
    return base64.urlsafe_b64encode(json.dumps(list(key), separators=(",", ":")).encode()).decode().rstrip("=")


def decode(cursor: str | None, *types: type) -> tuple[Key, ...] | None:
    """The key inside a cursor, checked against `types`; None for the first page."""
    if cursor is None:
        return None
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        key = None
    fits = isinstance(key, list) and len(key) == len(types)
    if not fits or any(type(part) is not kind or not _is_storable(part) for part, kind in zip(key, types, strict=True)):
        raise _not_ours()
    return tuple(key)


def _is_storable(part: object) -> bool:
    """Whether a column can be compared with a value: 64 bits, and text without NUL or half a character."""
    if isinstance(part, str):
        return "\0" not in part and not any("\ud800" <= sign <= "\udfff" for sign in part)
    return isinstance(part, int | float) and math.isfinite(part) and abs(part) < 1 << 63


def _not_ours() -> ProblemError:
    return ProblemError("invalid_cursor", "pass the next_cursor of the page before, unchanged, and with the same sort")


def moment(key: Key) -> datetime:
    """The time inside a cursor, as `isoformat` wrote it."""
    try:
        time = datetime.fromisoformat(str(key))
        in_utc = time.astimezone(UTC)
    except (ValueError, OverflowError):  # not every time of the first and the last day of the calendar has one in UTC
        raise _not_ours() from None
    if time.tzinfo is None:
        raise _not_ours()
    return in_utc


def page_of(rows: Sequence[Row], limit: int, describe: Callable[[Row], Item], key: Callable[[Row], Sequence[Key]]) -> Page[Item]:
    """A page from up to `limit + 1` rows: the extra one only tells that there is more."""
    shown = rows[:limit]
    more = len(rows) > limit
    return Page(items=[describe(row) for row in shown], next_cursor=encode(key(shown[-1])) if more else None)


def only(page: AnyPage, schema: type[BaseModel], fields: str | None) -> AnyPage | JSONResponse:
    """The page, each of its `items` with the asked `fields` alone; all of them where none is asked for, as `fields=` of an empty variable. Raises
    a problem that names the first one that `schema`, that of the items, has not."""
    chosen = lists.members("fields", fields, schema.model_fields)
    if not chosen:
        return page
    rest = dict.fromkeys(type(page).model_fields, True)
    return JSONResponse(page.model_dump(mode="json", include={**rest, "items": {"__all__": set(chosen)}}))
