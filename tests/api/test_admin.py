"""The administration command, as `up` uses it: a fresh process, one JSON document on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from paceline.api import admin
from paceline.api.core import identity
from paceline.api.services.nodes import joining
from paceline.api.settings import Settings
from paceline.cluster.protocol import JoinRequest
from paceline.cluster.states import JobState, NodeState
from paceline.credentials import KEY_PREFIX, hash_secret
from paceline.db.fencing import SKIPPED_GENERATIONS
from paceline.db.models.events import EventRow
from paceline.db.models.identity import JoinTokenRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.session import open_databases
from tests import factories

RUN_SECONDS = 60


def test_it_works_before_the_first_start_and_prints_one_document(tmp_path: Path) -> None:
    environment = {**os.environ, "PACELINE_DATA": str(tmp_path / "data")}
    environment.pop("DATABASE_URL", None)
    command = [sys.executable, "-m", "paceline.api.admin", "api-key", "--name", "local"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["key"].startswith(KEY_PREFIX)
    command[3:] = ["login-link", "--user", "nobody"]
    failed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "there is no user 'nobody'" in failed.stderr


async def run(settings: Settings, *arguments: str) -> dict[str, Any]:
    return await admin.run(admin.parse(arguments), settings)


async def test_actions(settings: Settings) -> None:
    assert await run(settings, "migrate") == {"migrated": True}
    link = await run(settings, "login-link", "--base-url", "https://train.example/")
    assert link["url"].startswith("https://train.example/login?token=")
    first, second = await run(settings, "api-key", "--name", "a"), await run(settings, "api-key", "--name", "b", "--role", "viewer")
    assert (first["user"], first["role"], second["role"]) == ("admin", "admin", "viewer")
    tokens = await run(settings, "join-token", "--count", "3")
    assert len(set(tokens["tokens"])) == 3
    assert tokens["token"] == tokens["tokens"][0]


async def test_a_node_that_is_there_gets_no_further_token(settings: Settings, tmp_path: Path) -> None:
    """Each `docker compose up` left tokens that no agent used, in a folder that ranks could read."""
    words = ("join-token", "--names", "agent-1", "--into", str(tmp_path), "--unless-present")
    token = (await run(settings, *words))["token"]
    assert (tmp_path / "agent-1").read_text() == token != ""
    control, metrics = open_databases(settings.data, settings.database_url)
    async with control.write() as session:
        await joining.join(session, JoinRequest(name="agent-1", token=token), datetime.now(UTC))
    assert (await run(settings, *words))["tokens"] == [""]
    assert (tmp_path / "agent-1").read_text() == ""
    async with control.write() as session:
        assert await session.scalar(select(func.count()).select_from(JoinTokenRow)) == 1
        (await session.scalars(select(NodeRow))).one().state = NodeState.GONE
    assert (await run(settings, *words))["token"] == (tmp_path / "agent-1").read_text() != ""
    await control.close()
    await metrics.close()


async def test_names_without_tokens_are_refused(settings: Settings) -> None:
    with pytest.raises(ValueError, match="2 names for 1 tokens"):
        await run(settings, "join-token", "--names", "agent-1,agent-2")


def test_a_count_out_of_range_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        admin.parse(["join-token", "--count", "0"])
    assert ended.value.code == 2
    assert "1..1000" in capsys.readouterr().err


async def test_a_replaced_key_opens_nothing_any_more(settings: Settings) -> None:
    first = await run(settings, "api-key", "--name", "local")
    other = await run(settings, "api-key", "--name", "another")
    second = await run(settings, "api-key", "--name", "local", "--replace")
    control, metrics = open_databases(settings.data, settings.database_url)
    async with control.read() as session:
        now = datetime.now(UTC)
        found = [await identity.caller_of_key(session, hash_secret(each["key"]), now) for each in (first, other, second)]
        told = [(row.type, row.actor_name) for row in await session.scalars(select(EventRow).order_by(EventRow.seq))]
    await control.close()
    await metrics.close()
    assert [caller is not None for caller in found] == [False, True, True]
    made, revoked = ("key.created", "the administration command"), ("key.revoked", "the administration command")
    assert told == [made, made, revoked, made]


async def test_after_a_restore_with_the_tools_of_postgresql_one_command_fences_off_what_ran_since(settings: Settings) -> None:
    assert await run(settings, "after-restore") == {"jobs": 0}
    control, metrics = open_databases(settings.data, settings.database_url)
    async with control.write() as session:
        await factories.create_job(session, state=JobState.RUNNING, generation=3)
    assert await run(settings, "after-restore") == {"jobs": 1}
    async with control.read() as session:
        job = (await session.scalars(select(JobRow))).one()
    await control.close()
    await metrics.close()
    assert (job.state, job.generation) == (JobState.RECOVERING, 3 + SKIPPED_GENERATIONS)
