"""What anybody may send: it is refused clearly, the event loop goes on, and a bystander is served."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from paceline.api.errors import CATALOGUE
from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.db.session import open_databases
from tests import factories
from tests.hostile.requests import CASES, JOBS, PLAN, SPEC, Hostile
from tests.loop_watchdog import Watch, watched
from tests.ports import HOST
from tests.served import Served, served

ANSWER_SECONDS = 10


@dataclass(frozen=True)
class Running:
    server: Served
    watch: Watch
    key: str
    bystander: httpx.Client


async def _key(data: Path) -> str:
    control, metrics = open_databases(data, None)
    async with control.write() as session:
        _, key = await factories.create_user(session, name="admin", role="admin")
    await control.close()
    await metrics.close()
    return key


@pytest.fixture(scope="module")
def running(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One coordinator for all cases, whose dashboard is built, and which has answered a request of each kind already."""
    data = tmp_path_factory.mktemp("hostile") / "data"
    shutil.copytree(sqlite_template, data)
    (data / "dist").mkdir()
    (data / "dist" / "index.html").write_text("<title>Paceline</title>")
    key = asyncio.run(_key(data))
    settings = Settings(data=data, database_url=None, redis_url=None, dashboard=data / "dist")
    with (
        served(create_app(settings, with_loops=False)) as server,
        httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=ANSWER_SECONDS) as bystander,
        watched(server.thread) as watch,
    ):
        assert bystander.post(PLAN, json=SPEC).status_code == 200
        assert bystander.get(JOBS).status_code == 200
        assert bystander.get("/").status_code == 200
        yield Running(server, watch, key, bystander)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_request_is_refused_and_nobody_else_notices(running: Running, case: Hostile) -> None:
    running.watch.forget()
    status, code = _answered(running, case)
    running.watch.assert_free()
    assert status < 500, code
    assert status in case.refused or (not case.refused and status < 300), (status, code)
    assert not case.refused or code in CATALOGUE
    assert code == case.code or not case.code
    assert running.bystander.get("/api/v1/auth/me").json()["name"] == "admin"


def _answered(running: Running, case: Hostile) -> tuple[int, str]:
    """(the status, the code of the problem). Byte by byte as the case says, which an HTTP library for good citizens would not send."""
    connection = http.client.HTTPConnection(HOST, running.server.port, timeout=ANSWER_SECONDS)
    headers = {"Content-Type": case.type} if case.type else {}
    headers |= {"Authorization": f"Bearer {running.key}"} if case.known else {}
    try:
        connection.putrequest(case.method, case.path, skip_host=case.hosts is not None)
        for host in case.hosts or ():
            connection.putheader("Host", host)
        for name, value in {**headers, **case.headers, "Content-Length": str(len(case.body))}.items():
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders()
        _send(connection, case.body)
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    if answer.headers.get_content_type() == "application/problem+json":
        return answer.status, json.loads(said)["code"]
    return answer.status, ""


def _send(connection: http.client.HTTPConnection, body: bytes) -> None:
    """As far as the server takes it: who is refused may be cut off."""
    try:
        connection.send(body)
    except OSError:
        return
