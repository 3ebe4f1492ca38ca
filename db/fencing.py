"""Fences off what a coordinator has handed out since a backup was made, in the database that was put back from it.

Agents and ranks live on while the coordinator's database goes back: they are in generations that it does not know, or knows as others. So its
next generations have numbers far beyond those, and what runs under the old ones is ended by its agents, since nothing desires it any more.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, and_, insert, inspect, literal, select, update

from paceline.cluster.states import TERMINAL_JOB_STATES, JobState, RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow

#: More generations than a job begins between a backup and the day when it is put back.
SKIPPED_GENERATIONS = 1_000_000
_AT_WORK = (JobState.STARTING, JobState.RUNNING, JobState.RESIZING)


def fence_generations(connection: Connection, now: datetime) -> int:
    """Have every job that has not ended go on, from its newest checkpoint, as a generation whose number was never used. Its ranks are taken
    for ended. Returns the number of these jobs. No coordinator may be running.

    A job's newest generation is then one without ranks that has ended. Only columns that every version has are named, or it is asked whether
    they are there: the schema is as old as the backup, until a coordinator migrates it.
    """
    unended = JobRow.state.not_in(TERMINAL_JOB_STATES)
    job_ids = select(JobRow.id).where(unended)
    left = update(RankRow).where(RankRow.job_id.in_(job_ids), RankRow.state.not_in((RankState.EXITED, RankState.MOVED)))
    connection.execute(left.values(state=RankState.EXITED, updated_at=now))
    connection.execute(update(RankRow).where(RankRow.job_id.in_(job_ids)).values(drained=True))
    _count_time(connection, now)
    open_generations = update(GenerationRow).where(GenerationRow.job_id.in_(job_ids), GenerationRow.ended_at.is_(None))
    connection.execute(open_generations.values(ended_at=now))
    at_work = update(JobRow).where(JobRow.state.in_(_AT_WORK))
    connection.execute(at_work.values(state=JobState.RECOVERING, end_reason=None, state_since=now, pending=None))
    renumbered = update(JobRow).where(unended)
    done = connection.execute(renumbered.values(generation=JobRow.generation + SKIPPED_GENERATIONS, version=JobRow.version + 1))
    columns = ("job_id", "generation", "world_size", "started_at", "ended_at", "start_step", "store_token")
    moment = literal(now, GenerationRow.started_at.type)
    empty = select(JobRow.id, JobRow.generation, JobRow.world_size, moment, moment, literal(0), literal("")).where(unended)
    connection.execute(insert(GenerationRow).from_select(columns, empty, include_defaults=False))
    return done.rowcount


def _count_time(connection: Connection, now: datetime) -> None:
    """Add the time for which generations that are about to be ended held slots to that of their jobs, by which limits and budgets go. The
    differences are taken here: the databases differ in their arithmetic of dates."""
    if all(column["name"] != JobRow.ran_seconds.key for column in inspect(connection).get_columns(JobRow.__tablename__)):
        return
    newest = and_(GenerationRow.job_id == JobRow.id, GenerationRow.generation == JobRow.generation)
    running = select(JobRow.id, JobRow.ran_seconds, GenerationRow.started_at).join(GenerationRow, newest)
    running = running.where(JobRow.state.not_in(TERMINAL_JOB_STATES), GenerationRow.ended_at.is_(None))
    for job_id, before, started_at in connection.execute(running).all():
        seconds = max(0.0, before + (now - started_at).total_seconds())
        connection.execute(update(JobRow).where(JobRow.id == job_id).values(ran_seconds=seconds))
