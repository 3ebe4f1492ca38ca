"""The real app over real databases: every test that asks for `app` or `client` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import asyncpg
import httpx
import hypothesis
import pytest
import redis
from fastapi import FastAPI

from paceline.api.core.context import Services
from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.db.migrate import upgrade_all
from paceline.db.session import open_databases
from tests import factories, published_parity, release_only, shared_statements, slow_tests, without_torch
from tests.private_redis import PrivateRedis

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

POSTGRES = os.environ.get("PACELINE_TEST_POSTGRES", "postgresql://root@127.0.0.1:5432/test")
REDIS = os.environ.get("PACELINE_TEST_REDIS", "redis://127.0.0.1:6379/0")
BASE_URL = "http://127.0.0.1:8000"


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as `make test &` has it: commands that tests start would ignore Ctrl-C too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A busy machine takes its time: no example has an absolute one, and neither have those that are made for a test.
    hypothesis.settings.register_profile("paceline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("paceline")
    published_parity.register(config)
    shared_statements.share()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    release_only.mark(items)
    slow_tests.require_reasons(items)
    yield  # tests that are not asked for are left out here
    if hasattr(config, "workerinput"):
        from tests.scheduling import order

        order(items)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    without_torch.skip_where_it_is_missing(collector, report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    slow_tests.name_unexplained(terminalreporter)


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests and all modules stay: the garbage collector need not look through them again and again


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from tests.scheduling import LongModulesFirst

    return LongModulesFirst(config, log)


def _lacking(message: str) -> NoReturn:
    """A skip that says so, or a failure where CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


async def _administer(statement: str) -> None:
    connection = await asyncpg.connect(POSTGRES.replace("+asyncpg", ""), timeout=5)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _url_of(name: str) -> str:
    return POSTGRES.rpartition("/")[0].replace("+asyncpg", "") + f"/{name}"


async def _migrate(data: Path, url: str | None) -> None:
    control, metrics = open_databases(data, url)
    await upgrade_all(control, metrics)
    await control.close()
    await metrics.close()


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[str]:
    """The name of a migrated database, dropped at the end. Without a server: a skip that says so, or a failure where CI=true."""
    name = f"paceline_template_{uuid.uuid4().hex[:8]}"
    try:
        asyncio.run(_administer(f'CREATE DATABASE "{name}"'))
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        _lacking(f"NO POSTGRESQL at {POSTGRES}: {error}; set PACELINE_TEST_POSTGRES")
    asyncio.run(_migrate(Path("."), _url_of(name)))
    yield name
    asyncio.run(_administer(f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture(scope="session")
def redis_url() -> str:
    """Of a real server that others may use as well."""
    try:
        with redis.Redis.from_url(REDIS, socket_timeout=5, socket_connect_timeout=5) as client:
            client.ping()
    except (OSError, redis.RedisError) as error:
        _lacking(f"NO REDIS at {REDIS}: {error}; set PACELINE_TEST_REDIS")
    return REDIS


@pytest.fixture
def promtool() -> str:
    """The path of Prometheus' program that checks metrics and rules."""
    program = os.environ.get("PACELINE_TEST_PROMTOOL") or shutil.which("promtool")
    return program or _lacking("NO PROMTOOL: install Prometheus, or set PACELINE_TEST_PROMTOOL")


@pytest.fixture
def private_redis(tmp_path: Path) -> Iterator[PrivateRedis]:
    """A server of this test's own, to kill and to start again."""
    program = shutil.which("redis-server")
    if program is None:
        _lacking("NO REDIS: the program redis-server is not installed")
    server = PrivateRedis(program, tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    asyncio.run(_migrate(folder, None))
    return folder


#: TRUNCATE would give every table new files; of the few rows of a test it is faster to delete each.
_EMPTY = """
DO $$
DECLARE each record;
BEGIN
    SET LOCAL session_replication_role = replica;  -- in any order, whatever refers to what
    FOR each IN SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE 'alembic%' LOOP
        EXECUTE format('DELETE FROM %I', each.name);
    END LOOP;
    FOR each IN SELECT sequencename AS name FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL LOOP
        PERFORM setval(format('%I', each.name), 1, false);
    END LOOP;
END $$
"""


async def _empty(name: str) -> None:
    """As after migrating; much faster than making a new database."""
    connection = await asyncpg.connect(_url_of(name), timeout=5)
    try:
        await connection.execute(_EMPTY)
    finally:
        await connection.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of a coordinator with an empty, migrated database. On PostgreSQL tests share it, one after the other."""
    data = tmp_path / "data"
    if request.param == "sqlite":
        shutil.copytree(request.getfixturevalue("sqlite_template"), data)
        return Settings(data=data, database_url=None, redis_url=None)
    name = request.getfixturevalue("postgres_template")
    asyncio.run(_empty(name))
    return Settings(data=data, database_url=_url_of(name), redis_url=None)


@pytest.fixture
def own_settings(settings: Settings) -> Iterator[Settings]:
    """The same for tests that change the schema itself: on PostgreSQL a database of their own."""
    if settings.database_url is None:
        yield settings
        return
    name = f"paceline_test_{uuid.uuid4().hex[:12]}"
    template = settings.database_url.rpartition("/")[2]
    asyncio.run(_administer(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'))
    yield settings.model_copy(update={"database_url": _url_of(name)})
    asyncio.run(_administer(f'DROP DATABASE "{name}" WITH (FORCE)'))


@pytest.fixture
async def app(settings: Settings) -> AsyncIterator[FastAPI]:
    """A started coordinator whose loops do not run by themselves."""
    app = create_app(settings, with_loops=False)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
def services(app: FastAPI) -> Services:
    found: Services = app.state.services
    return found


@dataclass(frozen=True)
class Connect:
    """Makes HTTP clients of one app, as this or that caller."""

    app: FastAPI

    def __call__(self, key: str | None = None, *, peer: str = "127.0.0.1") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False, client=(peer, 50000))
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=headers)


@pytest.fixture
def connect(app: FastAPI) -> Connect:
    return Connect(app)


@pytest.fixture
async def admin_key(services: Services) -> str:
    async with services.write() as session:
        _, key = await factories.create_user(session, name="admin", role="admin")
    return key


@pytest.fixture
async def client(connect: Connect, admin_key: str) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks to the app with an admin's API key."""
    async with connect(admin_key) as client:
        yield client
