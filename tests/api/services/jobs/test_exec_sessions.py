"""Who may run commands beside ranks, how many, and what the history keeps of them; on both databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from paceline.api.core.context import Services
from paceline.api.core.identity import Caller
from paceline.api.errors import ProblemError
from paceline.api.services.jobs import exec_sessions
from paceline.cluster.exec_frames import StartCommand
from paceline.cluster.states import NodeState, RankState
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import exec_sessions as rows
from tests import factories

OWNER = Caller(user_id="u1", name="ada", role="member", kind="key", credential="c", address="10.0.0.7", via="key ci")
COMMAND = StartCommand(command=("echo", "two words"))


@pytest.fixture
async def place(services: Services) -> tuple[JobRow, NodeRow]:
    """A running job of ada's with one rank, and its node."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, created_by="ada", created_by_id="u1")
        rank = await session.get(RankRow, (job.id, 1, 0))
        assert rank is not None
        rank.state = RankState.RUNNING
    return job, node


async def opened(services: Services, job: JobRow, caller: Caller = OWNER, start: StartCommand = COMMAND, **settings: object) -> str:
    limits = services.settings.model_copy(update=settings)
    async with services.write() as session:
        return (await exec_sessions.open_session(session, job.id, start, caller, limits, services.now())).id


async def told(services: Services, job: JobRow) -> list[tuple[str, str, str | None, str | None]]:
    async with services.control.read() as session:
        found = await event_rows.after(session, 0, limit=100, job_id=job.id)
    return [(row.type, row.message, row.address, row.via) for row in found if row.type.startswith("exec.")]


@pytest.mark.parametrize(
    ("caller", "by", "code"),
    [
        (OWNER, "owners", None),
        (OWNER, "admins", "exec_off"),
        (OWNER, "nobody", "exec_off"),
        (replace(OWNER, role="viewer"), "owners", "forbidden"),
        (replace(OWNER, role="viewer"), "nobody", "forbidden"),
        (replace(OWNER, user_id="u2", name="max"), "owners", "not_the_owner"),
        (replace(OWNER, user_id="u2", role="admin"), "owners", None),
        (replace(OWNER, user_id="u2", role="admin"), "admins", None),
        (replace(OWNER, user_id="u2", role="admin"), "nobody", "exec_off"),
    ],
)
async def test_the_owner_and_admins_may_as_far_as_the_setting_allows(
    services: Services, place: tuple[JobRow, NodeRow], caller: Caller, by: str, code: str | None
) -> None:
    job, _ = place
    if code is None:
        assert await opened(services, job, caller, exec_by=by)
        return
    with pytest.raises(ProblemError) as refused:
        await opened(services, job, caller, exec_by=by)
    assert refused.value.code == code


async def test_what_members_may_destroy_gives_nobody_a_shell(services: Services, place: tuple[JobRow, NodeRow]) -> None:
    with pytest.raises(ProblemError, match="only ada or an admin may run commands beside its ranks, and you are max, member"):
        await opened(services, place[0], replace(OWNER, user_id="u2", name="max"), members_may="all")


async def test_sessions_are_limited_by_node_and_by_user(services: Services, place: tuple[JobRow, NodeRow]) -> None:
    job, _ = place
    await opened(services, job)
    with pytest.raises(ProblemError, match="you have 1 of at most 1: end one first") as refused:
        await opened(services, job, exec_per_user=1)
    assert (refused.value.code, refused.value.status) == ("too_many_sessions", 429)
    admin = replace(OWNER, user_id="u2", role="admin")
    with pytest.raises(ProblemError, match="has 1 open session of at most 1, and you have 0"):
        await opened(services, job, admin, exec_per_node=1)
    assert await opened(services, job, admin, exec_per_node=2, exec_per_user=1)


async def test_a_rank_that_does_not_run_is_refused_with_those_that_do(services: Services, place: tuple[JobRow, NodeRow]) -> None:
    job, node = place
    with pytest.raises(ProblemError, match=r"rank 5 of .* does not run; running: 0"):
        await opened(services, job, start=replace_rank(5))
    async with services.write() as session:
        (await session.get_one(NodeRow, node.id)).state = NodeState.UNREACHABLE
    with pytest.raises(ProblemError, match="which is unreachable"):
        await opened(services, job)
    async with services.write() as session:
        (await session.get_one(RankRow, (job.id, 1, 0))).state = RankState.EXITED
    with pytest.raises(ProblemError, match="no rank of it runs"):
        await opened(services, job)


def replace_rank(rank: int) -> StartCommand:
    return StartCommand(rank=rank, command=("true",))


async def test_the_audit_has_who_what_where_from_how_long_and_how_it_ended_once(services: Services, place: tuple[JobRow, NodeRow]) -> None:
    job, node = place
    id = await opened(services, job)
    async with services.control.read() as session:
        row = await rows.get(session, id)
        assert row is not None
    now = row.opened_at + timedelta(seconds=90)
    for _ in range(2):
        async with services.write() as session:
            await exec_sessions.close_session(session, id, 3, "", now)
    assert await told(services, job) == [
        ("exec.opened", f"ada runs echo 'two words' beside rank 0 of {job.name} on {node.name}", "10.0.0.7", "key ci"),
        ("exec.closed", "echo 'two words' beside rank 0, by ada: exit code 3 after 90 s", "10.0.0.7", "key ci"),
    ]


async def test_a_session_of_a_replica_that_has_ended_counts_no_more_and_its_end_is_noted(
    services: Services, place: tuple[JobRow, NodeRow]
) -> None:
    job, node = place
    id = await opened(services, job)
    later = services.now() + exec_sessions.SILENT + timedelta(seconds=1)
    async with services.write() as session:
        assert await rows.count(session, node.id, "u1", later - exec_sessions.SILENT) == (0, 0)
        await exec_sessions.close_silent(session, later)
        assert await rows.get(session, id) is None
    assert [text for _, text, _, _ in await told(services, job)][1:] == [
        "echo 'two words' beside rank 0, by ada: no exit code after 0 s; the coordinator that had its client has ended"
    ]


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ((), "a shell"),
        (("env", "HF_TOKEN=hf_abc", "python", "x.py"), "env 'HF_TOKEN=***' python x.py"),
        (("tool", "--api-key", "k-123", "--steps", "3"), "tool --api-key '***' --steps 3"),
        (("tool", "--password=a b"), "tool '--password=***'"),
        (("sh", "-c", "export AWS_SECRET_ACCESS_KEY=abc; run"), "sh -c 'export AWS_SECRET_ACCESS_KEY=***; run'"),
        (("python", "tokenizer.py", "-n", "3"), "python tokenizer.py -n 3"),
        (("sh", "-c", "T_TOKEN='a b' run 'x'"), "sh -c 'T_TOKEN=***'"),
        (("sh", "-c", "T_TOKEN='" + "s" * 600), "sh -c 'T_TOKEN=***'"),
        (("x" * 600,), "x" * 500 + " ..."),
        (("token" * 6_000,), "token" * 100 + " ..."),
        (("sh", "-c", "token token" * 3_000), None),
    ],
)
def test_values_that_go_by_a_secrets_name_are_not_kept(command: tuple[str, ...], kept: str | None) -> None:
    found = exec_sessions.audited(command)
    assert kept in (None, found)
    assert len(found) <= exec_sessions.MOST_CHARACTERS + 4
