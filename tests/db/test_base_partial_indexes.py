"""What loops ask again and again is answered from indexes of the rows that matter: no scan of the history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.cluster.states import NodeState
from paceline.db.repositories import checkpoints, events, incidents, jobs, nodes, provisioning, slots
from tests import factories
from tests.factories import HOUR, START

Question = Callable[[AsyncSession], Awaitable[Any]]
QUESTIONS: list[tuple[Question, str]] = [
    (lambda session: slots.holders(session), "ix_ranks_open"),
    (lambda session: slots.holders(session, "n"), "ix_ranks_open"),
    (lambda session: jobs.open_ranks_of_node(session, "n"), "ix_ranks_open"),
    (lambda session: jobs.open_ranks_to_report(session, ["n"]), "ix_ranks_open"),
    (lambda session: jobs.nodes_with_open_ranks(session, ["j"]), "ix_ranks_open"),
    (lambda session: jobs.joiners(session, ["j", "k"], START), "ix_ranks_joined_later"),
    (lambda session: jobs.undecided(session), "ix_jobs_state"),
    (lambda session: jobs.queued(session), "ix_jobs_state_desired"),
    (lambda session: jobs.queue_mark(session), "ix_jobs_state_desired"),
    (lambda session: incidents.with_open_cause(session), "ix_incidents_unsettled"),
    (lambda session: checkpoints.marks(session), "ix_checkpoints_kept"),
    (lambda session: checkpoints.marks(session), "ix_jobs_restored_from"),
    (lambda session: checkpoints.being_deleted(session), "ix_checkpoints_being_deleted"),
    (lambda session: events.planned(session, "j"), "ix_events_planned"),
    (lambda session: events.count_of_job(session, "j", 10), "ix_events_job_id_seq"),
    (lambda session: nodes.present(session), "uq_nodes_name_while_present"),
    (lambda session: nodes.silent_since(session, START, START + HOUR), "uq_nodes_name_while_present"),
    (lambda session: nodes.in_states(session, [NodeState.LOST]), "uq_nodes_name_while_present"),
    (lambda session: nodes.count_by_state(session), "uq_nodes_name_while_present"),
    (lambda session: provisioning.taken_names(session), "uq_nodes_name_while_present"),
]


async def fill(services: Services) -> None:
    """Ended jobs with everything that they leave, so that PostgreSQL has a choice to make."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
        numbers = (
            "(WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i FROM n)"
            if services.control.is_sqlite
            else "(SELECT generate_series(2, 2000) AS i)"
        )
        for table, changed in (
            ("nodes", {"id": "'gone' || i", "state": "'gone'", "credential_hash": "'gone' || i"}),
            ("jobs", {"id": "'ended' || i", "state": "'completed'"}),
            ("generations", {"generation": "i"}),
            ("ranks", {"generation": "i", "state": "'exited'", "drained": "true"}),
        ):
            columns = [column.name for column in jobs.RankRow.metadata.tables[table].columns]  # type: ignore[attr-defined]
            mine = "id" if table in ("jobs", "nodes") else "job_id"
            values = ", ".join(changed.get(name, f"{table}.{name}") for name in columns)
            statement = (
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table}, {numbers} AS numbers WHERE {table}.{mine} = :id"
            )
            await session.execute(text(statement), {"id": node.id if table == "nodes" else job.id})


async def count_rows(services: Services) -> None:
    """Have PostgreSQL look at how many rows there are, which it does by itself and Paceline never asks for. It also goes by the size of its
    files: these become as small as they are without the tests before."""
    async with services.control.engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("VACUUM (FULL, ANALYZE) nodes, jobs, generations, ranks"))
        await connection.execute(text("ANALYZE"))


@pytest.fixture
async def filled(services: Services) -> Services:
    await fill(services)
    if not services.control.is_sqlite:
        await count_rows(services)
    return services


async def test_no_question_of_a_loop_is_answered_by_reading_the_history(filled: Services) -> None:
    asked: list[tuple[str, Any]] = []
    wrong: list[str] = []
    engine = filled.control.engine.sync_engine

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    for question, index in QUESTIONS:
        asked.clear()
        event.listen(engine, "before_cursor_execute", note)
        async with filled.control.read() as session:
            await question(session)
        event.remove(engine, "before_cursor_execute", note)
        plans = [await explain(filled, statement, parameters) for statement, parameters in asked]
        if not any(index in plan for plan in plans):
            wrong.append(f"{index}: {asked}\n{plans}")
    assert not wrong, "\n\n".join(wrong)


async def explain(services: Services, statement: str, parameters: Any) -> str:
    async with services.control.read() as session:
        if not services.control.is_sqlite:  # of tables with a few rows it would read all
            await session.execute(text("SET LOCAL enable_seqscan = off"))
        word = "EXPLAIN QUERY PLAN" if services.control.is_sqlite else "EXPLAIN"
        rows = await (await session.connection()).exec_driver_sql(f"{word} {statement}", parameters)
        return "\n".join(str(row[-1]) for row in rows)
