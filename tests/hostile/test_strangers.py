"""What anybody may send: it is refused clearly, the event loop goes on, and a bystander is served."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from paceline.api.core.origin import SAFE_METHODS
from paceline.api.errors import CATALOGUE
from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.db.session import open_databases
from tests import factories
from tests.api.test_identity import http_routes
from tests.hostile.requests import CASES, JOBS, JSON, PLAN, QUERIES, SPEC, VALUES, Hostile
from tests.loop_watchdog import Watch, watched
from tests.ports import HOST
from tests.served import Served, served

ANSWER_SECONDS = 10
#: Less than the least time that a body has: whoever waits for one to come, or to be given up, has waited longer.
SUBMISSION_SECONDS = 4.5


@dataclass(frozen=True)
class Running:
    server: Served
    watch: Watch
    key: str
    node_key: str
    routes: list[tuple[str, str]]
    bystander: httpx.Client


async def _keys(data: Path) -> tuple[str, str]:
    """(of an admin, of a node)."""
    control, metrics = open_databases(data, None)
    async with control.write() as session:
        _, key = await factories.create_user(session, name="admin", role="admin")
        _, node_key = await factories.create_node(session)
    await control.close()
    await metrics.close()
    return key, node_key


@pytest.fixture(scope="module")
def running(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One coordinator for all cases, whose dashboard is built, and which has answered a request of each kind already."""
    data = tmp_path_factory.mktemp("hostile") / "data"
    shutil.copytree(sqlite_template, data)
    (data / "dist").mkdir()
    (data / "dist" / "index.html").write_text("<title>Paceline</title>")
    key, node_key = asyncio.run(_keys(data))
    app = create_app(Settings(data=data, database_url=None, redis_url=None, dashboard=data / "dist"), with_loops=False)
    with (
        served(app) as server,
        httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, timeout=ANSWER_SECONDS) as bystander,
        watched(server.thread) as watch,
    ):
        assert bystander.post(PLAN, json=SPEC).status_code == 200
        assert bystander.get(JOBS).status_code == 200
        assert bystander.get("/").status_code == 200
        yield Running(server, watch, key, node_key, sorted(http_routes(app)), bystander)


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


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_on_postgresql_the_same_is_refused(client: httpx.AsyncClient) -> None:
    """Numbers, moments and texts that SQLite takes, its columns and operators of JSON do not."""
    wrong = []
    for case in (*VALUES, *QUERIES):
        answer = await client.request(case.method, case.path, content=case.body, headers={"Content-Type": case.type} if case.type else {})
        if answer.status_code not in case.refused and (case.refused or answer.status_code >= 300):
            wrong.append((case.name, answer.status_code, answer.text))
    assert wrong == []
    assert (await client.post(JOBS, json=SPEC)).status_code == 201


def test_bodies_that_never_come_hold_up_no_submission(running: Running) -> None:
    """Of every route, with a key that it knows: none holds a transaction, a connection or the turn of the writer while it waits."""
    with ExitStack() as open_:
        for method, path in running.routes:
            if method not in SAFE_METHODS:
                key = running.node_key if path.startswith("/api/v1/agents/") else running.key
                connection = open_.enter_context(closing(http.client.HTTPConnection(HOST, running.server.port, timeout=ANSWER_SECONDS)))
                connection.putrequest(method, path.replace("{", "").replace("}", ""))
                for name, value in {"Authorization": f"Bearer {key}", "Content-Type": JSON, "Content-Length": "100"}.items():
                    connection.putheader(name, value)
                connection.endheaders()
        assert running.bystander.get("/healthz").status_code == 200  # by then all have begun
        for number in range(3):
            answer = running.bystander.post(JOBS, json=SPEC | {"name": f"beside-{number}"}, timeout=SUBMISSION_SECONDS)
            assert answer.status_code == 201, answer.text


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
