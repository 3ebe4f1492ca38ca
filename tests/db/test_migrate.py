"""Migrations and models agree on both databases, and starting twice, or together, is harmless."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator

import pytest
from alembic import command
from sqlalchemy import insert, inspect, select, text

from paceline.api.settings import Settings
from paceline.db.base import ControlBase
from paceline.db.errors import MigrationError
from paceline.db.migrate import CONTROL, check, upgrade_all
from paceline.db.models.identity import ApiKeyRow
from paceline.db.models.metrics import MetricRecordRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import rollups
from paceline.db.repositories.jobs import JobFilter, JobOrder
from paceline.db.session import Database, open_databases
from tests import factories

MIGRATE_SECONDS = 60


@pytest.fixture
async def databases(own_settings: Settings) -> AsyncIterator[tuple[Database, Database]]:
    control, metrics = open_databases(own_settings.data, own_settings.database_url)
    yield control, metrics
    await control.close()
    await metrics.close()


async def test_models_say_what_the_migrations_made(databases: tuple[Database, Database]) -> None:
    await check(*databases)


async def test_a_column_without_a_migration_is_found(databases: tuple[Database, Database]) -> None:
    async with databases[0].write() as session:
        await session.execute(text("ALTER TABLE leases DROP COLUMN holder"))
    with pytest.raises(MigrationError, match="holder"):
        await check(*databases)


async def test_replicas_that_start_together_migrate_once(databases: tuple[Database, Database], own_settings: Settings) -> None:
    """Real processes, because that is what replicas are, on databases that are empty again."""
    control, metrics = databases
    async with control.write() as session:
        await session.execute(text("DROP TABLE alembic_version_control"))
        for table in await (await session.connection()).run_sync(lambda connection: inspect(connection).get_table_names()):
            if table in ControlBase.metadata.tables:
                await session.execute(text(f'DROP TABLE "{table}"' + ("" if control.is_sqlite else " CASCADE")))
    environment = {**os.environ, "PACELINE_DATA": str(own_settings.data), "DATABASE_URL": own_settings.database_url or ""}
    command = [sys.executable, "-m", "paceline.api.admin", "migrate"]
    replicas = [await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=PIPE) for _ in range(2)]
    for replica in replicas:
        output, errors = await asyncio.wait_for(replica.communicate(), MIGRATE_SECONDS)
        assert (replica.returncode, output) == (0, b'{"migrated": true}\n'), errors.decode()
    await check(control, metrics)


async def test_a_database_of_a_newer_version_is_refused(databases: tuple[Database, Database]) -> None:
    async with databases[0].write() as session:
        await session.execute(text("UPDATE alembic_version_control SET version_num = 'control_9999'"))
    with pytest.raises(MigrationError, match="use the version of Paceline that wrote it"):
        await upgrade_all(*databases)


async def test_points_of_a_version_that_made_roll_ups_at_once_have_theirs(databases: tuple[Database, Database]) -> None:
    """They are not rolled up a second time."""
    record = {"job_id": "j", "generation": 1, "rank": 0, "step": 1, "time": 0.0, "values": "{}"}
    async with databases[1].write() as session:
        await session.execute(insert(MetricRecordRow), [record] * 3)
        newest = await rollups.newest_seq(session)
        for table in ("rollup_marks", "node_readings", "node_reading_rollups", "bundle_chunks"):
            await session.execute(text(f"DROP TABLE {table}"))
        await session.execute(text("UPDATE alembic_version_metrics SET version_num = 'metrics_0003'"))
    await upgrade_all(*databases)
    async with databases[1].read() as session:
        assert await rollups.made_to(session) == newest >= 3
        assert (await rollups.tail(session, "j")).records == []


async def downgrade(database: Database, revision: str) -> None:
    """Undo the newest migrations of a control database, down to this one."""
    async with database.write() as session:
        connection = await session.connection()
        await connection.run_sync(lambda synchronous: command.downgrade(CONTROL.config(synchronous), revision))


async def test_jobs_of_a_version_that_could_not_search_are_found(databases: tuple[Database, Database]) -> None:
    async with databases[0].write() as session:
        spec = factories.job_spec(name="first", description="Émile's baseline", labels={"team": "nlp"})
        job = await factories.create_job(session, spec=spec)
        script = factories.job_spec(name="other", model=None, data=None, training=None, script={"path": "train.py"})
        await factories.create_job(session, spec=script)
    await downgrade(databases[0], "control_0019")
    await upgrade_all(*databases)
    order = JobOrder("name", descending=False)
    async with databases[0].read() as session:
        for wanted in (JobFilter(text="émile"), JobFilter(text="team=nlp"), JobFilter(models=("mlp",))):
            assert [row.id for row in await job_rows.page(session, wanted, order, 9)] == [job.id], wanted
        assert [row.name for row in await job_rows.page(session, JobFilter(models=("script",)), order, 9)] == ["other"]


async def test_ranks_of_a_version_that_did_not_note_their_cards_get_those_that_their_node_offers(
    databases: tuple[Database, Database],
) -> None:
    async with databases[0].write() as session:
        gpus = [{"index": 3}, {"index": 5}]
        node, _ = await factories.create_node(session, device="cuda", slots=2, inventory={"gpus": gpus})
        cpus, _ = await factories.create_node(session, name="cpus")
        jobs = [await factories.create_running_job(session, on, world_size=2) for on in (node, cpus)]
    await downgrade(databases[0], "control_0017")
    await upgrade_all(*databases)
    async with databases[0].read() as session:
        found = await job_rows.ranks(session, [(job.id, 1) for job in jobs])
    assert [[rank.card for rank in found[job.id, 1]] for job in jobs] == [[3, 5], [None, None]]


async def test_keys_of_one_name_from_a_version_that_allowed_it_are_kept(databases: tuple[Database, Database]) -> None:
    async with databases[0].write() as session:
        await factories.create_user(session, name="ada", role="admin")  # with a key, `test`
    await downgrade(databases[0], "control_0031")
    columns = "hash, prefix, name, role, user_id, created_at"
    async with databases[0].write() as session:
        another = f"INSERT INTO api_keys (id, {columns}) SELECT 'twin', 'twin', prefix, name, role, user_id, created_at FROM api_keys"
        await session.execute(text(another))
    await upgrade_all(*databases)
    async with databases[0].read() as session:
        keys = (await session.scalars(select(ApiKeyRow))).all()
    assert [(key.name, key.holds_name) for key in keys] == [("test", False)] * 2
    assert "twin" in {key.id for key in keys}
