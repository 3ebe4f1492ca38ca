"""Column types and the two declarative bases: *control* (users, nodes, jobs, ...) and *metrics* (points and log lines).

On SQLite each base is a file of its own, so that a flood of points never waits for, or delays, a state change. On
PostgreSQL both live in one database. Ids are ULIDs in text columns; times are timezone-aware UTC everywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from sqlalchemy import JSON, BigInteger, ColumnElement, DateTime, Dialect, Index, Integer, MetaData, Text, literal_column
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute
from sqlalchemy.types import TypeDecorator
from ulid import ULID

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

E = TypeVar("E", bound=StrEnum)


class ControlBase(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)


class MetricsBase(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime. SQLite keeps naive text, so the zone is taken off on the way in and put back on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; use datetime.now(UTC)")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class TextEnum(TypeDecorator[E]):
    """A `StrEnum` in a text column: a new member needs no migration."""

    impl = Text
    cache_ok = True

    def __init__(self, members: type[E]) -> None:
        super().__init__()
        self.members = members
        self._by_value: Mapping[Any, E] = {member.value: member for member in members}

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:
        return None if value is None else self.members(value).value

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], E | None]:
        """A look-up: every row of every list has such columns, and calling an enumeration costs a microsecond."""
        by_value = self._by_value

        def process(value: Any) -> E | None:
            return None if value is None else by_value[value] if value in by_value else self.members(value)

        return process


#: A JSON document; assign a new value to change it, changes inside one are not seen. None is SQL NULL.
JsonDocument = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

#: The same with the keys in their order, which PostgreSQL's JSONB changes.
OrderedDocument = JSON(none_as_null=True)

#: 64 bits on both; SQLite numbers rows by itself only in a column called INTEGER.
BigInt = BigInteger().with_variant(Integer, "sqlite")


def constants(*words: str) -> list[ColumnElement[str]]:
    """Values for `column.in_()`, written out in the statement, so that it can match a partial index."""
    return [literal_column(f"'{word}'") for word in sorted(words)]


def partial_index(name: str, condition: ColumnElement[bool], *columns: InstrumentedAttribute[Any]) -> Index:
    """An index of the rows that meet a condition, for queries whose cost must not grow with history. Both databases use it only where a
    query states the same condition with the same constants: use the condition itself, and no bound parameters in it."""
    return Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


def new_id() -> str:
    return str(ULID())


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def load_json(text: str | bytes) -> Any:
    """The value of stored JSON text, read in a third of json's time; what msgspec refuses, such as half a surrogate pair, is read by json."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def dump_json(value: Any) -> str:
    """JSON text. NaN and the infinities become the strings that pydantic and msgspec read back as floats."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
