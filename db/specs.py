"""The column type of job specs: a spec leaves the database as one value, which today's schema has read at most once.

The scheduler reads the rows of all jobs that move again and again, and their specs stay as they are: where the driver hands over text
(SQLite's), equal text is the same `StoredSpec`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from sqlalchemy import JSON, Dialect
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

from paceline.training.spec.stored import MOST_KEPT, StoredSpec


class SpecDocument(TypeDecorator[StoredSpec]):
    """A column of JSON documents whose values are `StoredSpec`."""

    impl = JSON
    cache_ok = True
    hashable = False

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        on_postgresql = dialect.name == "postgresql"
        return dialect.type_descriptor(JSONB(none_as_null=True) if on_postgresql else JSON(none_as_null=True))

    def process_bind_param(self, value: StoredSpec | None, dialect: Dialect) -> dict[str, Any] | None:
        return None if value is None else value.document

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], StoredSpec | None]:
        """How a value of the driver becomes a spec: SQLite's is text, PostgreSQL's is decoded already."""
        return _from_driver


def _from_driver(value: str | dict[str, Any] | None) -> StoredSpec | None:
    if value is None:
        return None
    return _from_text(value) if isinstance(value, str) else StoredSpec(value)


@lru_cache(maxsize=MOST_KEPT)
def _from_text(document: str) -> StoredSpec:
    return StoredSpec(json.loads(document))
