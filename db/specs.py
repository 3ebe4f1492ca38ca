"""The column type of job specs: a spec leaves the database as one value, which today's schema has read at most once."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Dialect
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

from paceline.training.spec.stored import StoredSpec


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

    def process_result_value(self, value: dict[str, Any] | None, dialect: Dialect) -> StoredSpec | None:
        return None if value is None else StoredSpec(value)
