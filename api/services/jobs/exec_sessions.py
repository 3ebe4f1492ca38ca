"""Commands beside ranks: who may run them, how many, and what the audit keeps of each."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import RequestActor
from paceline.api.services.jobs import jobs
from paceline.api.services.lifecycle import events
from paceline.api.settings import Settings
from paceline.cluster.exec_frames import StartCommand
from paceline.cluster.states import NodeState, RankState
from paceline.db.models.exec_sessions import ExecSessionRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import exec_sessions as rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.monitoring.words import plural

#: A session that no replica has spoken for as long as this has ended with the replica that had its client.
SILENT = timedelta(seconds=60)
MOST_CHARACTERS = 500
ALIVE = frozenset({RankState.STARTING, RankState.PARKED, RankState.RUNNING})
REACHABLE = frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING})
_NAME = r"[\w-]*(?:token|secret|passw(?:or)?d|credential|api-?key|_key|_auth|_jwt)[\w-]*"
_ASSIGNED = re.compile(rf"({_NAME}=).+", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(rf"--?{_NAME}", re.IGNORECASE)
#: In a word that is itself a command line, such as that of `sh -c`.
_WITHIN = re.compile(rf"(?<![\w-])({_NAME}(?:\s*[=:]\s*|\s+))(?![-\s])(\"[^\"]*\"?|'[^']*'?|[^\s\"';]+)", re.IGNORECASE)
MASK = "***"


def audited(command: tuple[str, ...]) -> str:
    """A command line as the history keeps it: values that go by a name of a secret are left out, and so is the end of a long one."""
    if not command:
        return "a shell"
    words, before = [], ""
    for word in command:
        words.append(_masked(word[: MOST_CHARACTERS + 1], before))
        before = word
        if sum(map(len, words)) > MOST_CHARACTERS:  # no pattern is tried on 32 KiB
            break
    line = shlex.join(words)
    return line if len(line) <= MOST_CHARACTERS else line[:MOST_CHARACTERS] + " ..."


def _masked(word: str, before: str) -> str:
    """The word without values that go by a name of a secret, which may be that of the option before it."""
    if _OPTION.fullmatch(before) and not word.startswith("-"):
        return MASK
    if assigned := _ASSIGNED.fullmatch(word):
        return assigned[1] + MASK
    return _WITHIN.sub(rf"\1{MASK}", word) if any(map(str.isspace, word)) else word


async def open_session(
    session: AsyncSession, job_id: str, start: StartCommand, caller: Caller, settings: Settings, now: datetime
) -> ExecSessionRow:
    """Open a session beside a rank of the newest generation. Raises ProblemError: forbidden, exec_off, not_the_owner, not_found, job_not_running,
    rank_not_running, node_away or too_many_sessions."""
    job = await jobs.find(session, job_id)
    require_right(caller, job, settings)
    rank, node = await _place(session, job, start.rank)
    await node_rows.lock(session, [node.id])
    live = await rows.count(session, node.id, caller.user_id, now - SILENT)
    if live.of_node >= settings.exec_per_node or live.of_user >= settings.exec_per_user:
        raise ProblemError(
            "too_many_sessions",
            f"{node.name} has {plural(live.of_node, 'open session')} of at most {settings.exec_per_node}, and you have "
            f"{live.of_user} of at most {settings.exec_per_user}: end one first (PACELINE_EXEC_PER_NODE, PACELINE_EXEC_PER_USER)",
        )
    row = ExecSessionRow(
        job_id=job.id,
        generation=job.generation,
        rank=rank.rank,
        node_id=node.id,
        user_id=caller.user_id,
        user_name=caller.name,
        address=caller.address,
        via=caller.via,
        command=audited(start.command),
        asked=False,
        refusal=None,
        opened_at=now,
        seen_at=now,
    )
    session.add(row)
    await session.flush()
    terminal = " in a terminal" if start.tty else ""
    text = f"{caller.name} runs {row.command}{terminal} beside rank {rank.rank} of {job.name} on {node.name}"
    await _record(session, row, "exec.opened", "request", text, now)
    nudge_after_commit(session, bus.EXEC)
    return row


def require_right(caller: Caller, job: JobRow, settings: Settings) -> None:
    """Require the job's owner or an admin, whatever PACELINE_MEMBERS_MAY says: a command reads what its job reads. Raises ProblemError forbidden,
    exec_off or not_the_owner."""
    if not caller.may("member"):
        raise ProblemError(
            "forbidden",
            f"commands beside ranks are for a job's owner and admins; you are signed in as {caller.name} with the role {caller.role}",
        )
    if settings.exec_by == "nobody":
        raise ProblemError("exec_off", "commands beside ranks are switched off where the coordinator starts (PACELINE_EXEC_BY=nobody)")
    if caller.may("admin"):
        return
    if settings.exec_by == "admins":
        raise ProblemError(
            "exec_off", f"here only admins may run commands beside ranks (PACELINE_EXEC_BY=admins); you are {caller.name}, member"
        )
    if job.created_by_id != caller.user_id:
        raise ProblemError(
            "not_the_owner",
            f"job {job.name} ({job.id}) is {job.created_by}'s: only {job.created_by} or an admin may run commands beside its ranks, and you are "
            f"{caller.name}, {caller.role}; ask one of them",
        )


async def _place(session: AsyncSession, job: JobRow, number: int) -> tuple[RankRow, NodeRow]:
    """The rank of the newest generation, alive, and its node, connected."""
    found = await job_rows.ranks_with_nodes(session, job.id, job.generation)
    living = [(rank, node) for rank, node in found if rank.state in ALIVE]
    if not living:
        raise ProblemError("job_not_running", f"job {job.name} is {job.state}: no rank of it runs that a command could be beside")
    for rank, node in living:
        if rank.rank == number:
            if node.state not in REACHABLE:
                raise ProblemError("node_away", f"rank {number} is on {node.name}, which is {node.state}; try again when it is connected")
            return rank, node
    numbers = ", ".join(str(rank.rank) for rank, _ in living[:20]) + (" ..." if len(living) > 20 else "")
    raise ProblemError("rank_not_running", f"rank {number} of {job.name} does not run; running: {numbers}")


async def close_session(
    session: AsyncSession, id: str, exit_code: int | None, why: str, now: datetime, ended_at: datetime | None = None
) -> None:
    """Note the end of a session, once. `why`: in words; empty where the command has ended by itself. `ended_at`: None: now."""
    row = await rows.get(session, id)
    if row is None or not await rows.remove(session, id):
        return
    seconds = max(0.0, ((ended_at or now) - row.opened_at).total_seconds())
    how = f"exit code {exit_code}" if exit_code is not None else "no exit code"
    text = f"{row.command} beside rank {row.rank}, by {row.user_name}: {how} after {seconds:.0f} s" + (f"; {why}" if why else "")
    await _record(
        session, row, "exec.closed", "exited" if exit_code is not None else "ended", text, now, exit_code=exit_code, seconds=seconds
    )


async def close_silent(session: AsyncSession, now: datetime) -> None:
    """Note the end of the sessions whose replica of the coordinator has ended."""
    for row in await rows.silent(session, now - SILENT):
        await close_session(session, row.id, None, "the coordinator that had its client has ended", now, row.seen_at)


async def _record(session: AsyncSession, row: ExecSessionRow, type: str, cause: str, text: str, now: datetime, **data: object) -> None:
    await events.record(
        session,
        type=type,
        actor=RequestActor(kind="user", id=row.user_id, name=row.user_name, address=row.address, via=row.via),
        cause=cause,
        message=text,
        job_id=row.job_id,
        node_id=row.node_id,
        generation=row.generation,
        data={"session": row.id, "rank": row.rank, "command": row.command} | data,
        time=now,
    )
