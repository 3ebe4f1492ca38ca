"""Brings both schemas up to date, and compares them with the models.

python -m paceline.db.migrate check [--url URL]          the models and the migrations agree (default: fresh SQLite files)
python -m paceline.db.migrate revision control "why"     write a migration from what the models say
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, MetaData

from paceline.db.base import ControlBase, MetricsBase
from paceline.db.copies import copy_before_migration
from paceline.db.errors import MigrationError
from paceline.db.session import Database, open_databases

MIGRATIONS = Path(__file__).parent / "migrations"
MODELS = (
    "identity",
    "experiments",
    "incidents",
    "nodes",
    "jobs",
    "checkpoints",
    "events",
    "leases",
    "metrics",
    "artifacts",
    "charts",
    "readings",
    "registry",
    "saved_views",
    "storage",
)


@dataclass(frozen=True)
class MigrationLine:
    """One line of migrations, with a version table of its own, because PostgreSQL holds both."""

    name: str
    metadata: MetaData

    @functools.cached_property
    def newest(self) -> str | None:
        """The revision that this version of Paceline migrates to."""
        return ScriptDirectory.from_config(self._locations()).get_current_head()

    def knows(self, revision: str) -> bool:
        """Whether this version can bring a database of this revision up to date; empty: a database without a revision."""
        return not revision or revision in {script.revision for script in ScriptDirectory.from_config(self._locations()).walk_revisions()}

    def is_newest(self, connection: Connection) -> bool:
        """Whether the database has the newest revision. Asks the database alone: to run no migrations takes alembic a tenth of a second."""
        return self.revision_of(connection) == self.newest

    def revision_of(self, connection: Connection) -> str | None:
        return MigrationContext.configure(connection, opts={"version_table": self.version_table}).get_current_revision()

    @property
    def version_table(self) -> str:
        return f"alembic_version_{self.name}"

    def config(self, connection: Connection) -> Config:
        config = self._locations()
        config.attributes.update(connection=connection, metadata=self.metadata, version_table=self.version_table)
        return config

    def _locations(self) -> Config:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.set_main_option("version_locations", str(MIGRATIONS / self.name))
        config.set_main_option("path_separator", "newline")
        return config


CONTROL = MigrationLine("control", ControlBase.metadata)
METRICS = MigrationLine("metrics", MetricsBase.metadata)


def _load_models() -> None:
    for name in MODELS:
        importlib.import_module(f"paceline.db.models.{name}")


def _upgrade(connection: Connection, schema: MigrationLine) -> None:
    if schema.is_newest(connection):
        return
    if schema is CONTROL:
        _keep_a_copy(connection, schema)
    command.upgrade(schema.config(connection), "head")


def _keep_a_copy(connection: Connection, schema: MigrationLine) -> None:
    """Copy what an older version has written, where it is a file of ours; a PostgreSQL server has its own operators."""
    path, revision = connection.engine.url.database, schema.revision_of(connection)
    if connection.dialect.name == "sqlite" and path and revision is not None and schema.knows(revision):
        copy_before_migration(Path(path), revision)


def _check(connection: Connection, schema: MigrationLine) -> None:
    command.check(schema.config(connection))


def _revise(connection: Connection, schema: MigrationLine, message: str) -> None:
    config = schema.config(connection)
    count = len(list(ScriptDirectory.from_config(config).walk_revisions()))
    command.revision(config, message, autogenerate=True, rev_id=f"{schema.name}_{count + 1:04}")


async def upgrade(database: Database, schema: MigrationLine) -> None:
    """Apply what is missing, all or nothing. Raises MigrationError for a database that a newer version has migrated."""
    _load_models()
    try:
        async with database.write() as session:
            await (await session.connection()).run_sync(_upgrade, schema)
    except CommandError as error:
        raise MigrationError(
            f"the {schema.name} database cannot be migrated: {error}; use the version of Paceline that wrote it"
        ) from error


async def upgrade_all(control: Database, metrics: Database) -> None:
    await upgrade(control, CONTROL)
    await upgrade(metrics, METRICS)


async def check(control: Database, metrics: Database) -> None:
    """Raise MigrationError when the models and the migrations differ."""
    for database, schema in ((control, CONTROL), (metrics, METRICS)):
        try:
            async with database.engine.connect() as connection:
                await connection.run_sync(_check, schema)
        except CommandError as error:
            raise MigrationError(f"{schema.name}: {error}; run `python -m paceline.db.migrate revision {schema.name} WHY`") from error


async def _main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        control, metrics = open_databases(Path(folder), getattr(arguments, "url", None))
        try:
            await upgrade_all(control, metrics)
            if arguments.action == "check":
                await check(control, metrics)
            else:
                database, schema = (control, CONTROL) if arguments.schema == "control" else (metrics, METRICS)
                async with database.engine.connect() as connection:
                    await connection.run_sync(_revise, schema, arguments.message)
        finally:
            await control.close()
            await metrics.close()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paceline.db.migrate")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("check").add_argument("--url", help="an empty PostgreSQL database")
    revision = actions.add_parser("revision")
    revision.add_argument("schema", choices=("control", "metrics"))
    revision.add_argument("message")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(_main(_parse()))
    except MigrationError as error:
        sys.exit(f"error: {error}")
