"""Alembic's entry point: runs on the connection, and for the metadata, that `db.migrate` hands over."""

from typing import Any, Literal

from alembic import context
from sqlalchemy import JSON, BigInteger, Connection, MetaData, text

from paceline.db.base import TextEnum, UtcDateTime

MIGRATION_LOCK = 0x7061_6365_0000


_NAMES = {TextEnum: "sa.Text()", UtcDateTime: "types.UtcDateTime()", JSON: "types.JsonDocument", BigInteger: "types.BigInt"}


def render_type(kind: str, item: Any, _: Any) -> str | Literal[False]:
    """Render our column types by their names, so that a migration reads like the models."""
    return next((name for known, name in _NAMES.items() if kind == "type" and isinstance(item, known)), False)


def run() -> None:
    attributes = context.config.attributes
    connection: Connection = attributes["connection"]
    metadata: MetaData = attributes["metadata"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=attributes["version_table"],
        include_name=lambda name, kind, parents: kind != "table" or name in metadata.tables,
        render_as_batch=True,
        compare_type=True,
        render_item=render_type,
    )
    with context.begin_transaction():
        if connection.dialect.name == "postgresql":  # replicas start together: one migrates, the others wait for it
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        context.run_migrations()


run()
