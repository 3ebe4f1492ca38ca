"""The spec of a job as it leaves the database: one value, which today's schema has read at most once.

A spec was checked when it was submitted, by the schema of that day. A later release may refuse it. Such a spec is *unreadable*: its
document stays as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from pydantic import ValidationError
from sqlalchemy import JSON, Dialect
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

from paceline.db.base import dump_json
from paceline.training.spec.job import JobSpec
from paceline.training.spec.refusals import told

#: Parsed specs that are kept. They are frozen, and found by what the stored document says: a changed document is another one.
MOST_KEPT = 1024
#: Of the wrong fields of one spec, how many are named.
MOST_NAMED = 3


@dataclass(frozen=True)
class StoredSpec:
    """A spec as it was submitted (`document`, which nobody changes), and what today's schema makes of it."""

    document: dict[str, Any]

    @property
    def readable(self) -> JobSpec | None:
        """The typed spec. None where today's schema refuses the document: see `why_unreadable`."""
        return None if isinstance(self._parsed, str) else self._parsed

    @property
    def why_unreadable(self) -> str | None:
        """The schema's objection to the document. None where it can be read."""
        return self._parsed if isinstance(self._parsed, str) else None

    def part(self, *names: str) -> Any:
        """One value of the document, whether or not all of it can be read. None where it is not there."""
        value: Any = self.document
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    @cached_property
    def _parsed(self) -> JobSpec | str:
        return parse_document(dump_json(self.document))


@lru_cache(maxsize=MOST_KEPT)
def parse_document(document: str) -> JobSpec | str:
    """The only place where a stored spec becomes a typed one. Returns what is wrong where the schema refuses it."""
    try:
        return JobSpec.model_validate(json.loads(document))
    except ValidationError as error:
        return told(error, MOST_NAMED)
    except Exception as error:  # noqa: BLE001 - a check of ours met something that it did not expect, which is no reason to fail whoever asks
        return f"{type(error).__name__}: {error}"


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
