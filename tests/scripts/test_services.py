"""Private instances of what is installed: they answer while they are needed and are gone afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from scripts import services
from tests.ports import free_port


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where no server listens on the standard ports."""
    for name in ("PACELINE_TEST_POSTGRES", "PACELINE_TEST_REDIS"):
        monkeypatch.delenv(name, raising=False)
    free = free_port()
    monkeypatch.setattr(services, "POSTGRES_PORT", free)
    monkeypatch.setattr(services, "REDIS_PORT", free)


def listens(url: str) -> bool:
    port = urlsplit(url).port
    assert port is not None
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def require(found: object, program: str) -> None:
    if not found:
        message = f"{program} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


def test_private_postgres_makes_databases_and_is_gone_afterwards() -> None:
    require(services.postgres_programs(), "PostgreSQL")

    async def create(url: str) -> None:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        await connection.execute("create database trial")
        await connection.close()

    with services.postgres() as url:
        assert url is not None
        asyncio.run(create(url))
    assert not listens(url)


def test_private_redis_answers_and_is_gone_afterwards() -> None:
    require(shutil.which("redis-server"), "Redis")
    with services.redis() as url:
        assert url is not None
        port = urlsplit(url).port
        assert port is not None
        assert services._redis_answers(port)
    assert not listens(url)


def test_running_services_are_used_and_left_running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require(shutil.which("redis-server"), "Redis")
    with services.redis() as outer:
        assert outer is not None
        monkeypatch.setattr(services, "REDIS_PORT", urlsplit(outer).port)
        with services.redis() as inner:
            assert inner == outer
        assert listens(outer)


def test_sshd_is_found_beside_the_path_of_users_and_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in /usr/sbin, which is not in everybody's PATH; without it the tests of SSH hosts were skipped in silence, with CI=true too."""
    monkeypatch.delenv("PACELINE_TEST_SSHD", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    require(services.sshd(), "sshd")
    monkeypatch.setenv("PACELINE_TEST_SSHD", "/opt/sshd")
    assert services.sshd() == "/opt/sshd"
