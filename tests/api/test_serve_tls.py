"""The coordinator over TLS, as `paceline up --tls self-signed` starts it: a real server with an authority of its own, and real clients of it."""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets.exceptions
import websockets.sync.client
from fastapi import FastAPI

from paceline.api import serve
from paceline.api.core.certificates import ServerCertificate, own_certificate
from paceline.api.core.context import Services
from paceline.api.main import create_app
from paceline.api.serve import CoordinatorServer, configuration, listen
from paceline.api.services.nodes import joining
from paceline.api.settings import Settings
from paceline.cli.client import RestClient
from paceline.cli.errors import NotBelievedError
from paceline.cli.settings import ClientSettings, Setting
from paceline.cluster.agent.errors import JoinRefusedError
from paceline.cluster.agent.exec_sessions.keeper import find_client
from paceline.cluster.agent.exec_sessions.order import KeeperOrder
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.join import Credential, credential_for
from paceline.cluster.agent.settings import read_settings
from paceline.cluster.protocol import CHANNEL_PATH, UPLOAD_PATH
from paceline.tls.authority import RENEW_BEFORE, SERVER_LIFE, CertificateFiles, ensure_certificate
from paceline.tls.fetch import fetch_authority
from paceline.tls.trust import TrustError, fingerprint_of, split_token, with_fingerprint
from tests import factories
from tests.ports import free_port
from tests.waiting import wait_until

#: Plain on the first, TLS on the second: as loopback and the machine's own address, which a machine without a network has not.
PLAIN, SECURE = "127.0.0.1", "127.0.0.2"
START_SECONDS = 60.0


@dataclass
class Coordinator:
    """A server in a thread of its own, and its event loop, in which a test makes what it needs."""

    app: FastAPI
    server: CoordinatorServer
    certificate: ServerCertificate
    port: int
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"https://{SECURE}:{self.port}"

    @property
    def authority(self) -> str:
        return self.certificate.authority.read_text() if self.certificate.authority else ""

    def make(self, what: Callable[[Services], Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what(self.app.state.services), self.loop).result(START_SECONDS)

    def token(self, authority: str | None = None) -> str:
        async def create(services: Services) -> str:
            async with services.write() as session:
                token, _ = await joining.create_join_token(session, created_by="a test", now=services.now(), lifetime=timedelta(hours=1))
                return joining.pinned(token, self.url, authority or self.authority)

        return str(self.make(create))

    def key(self, name: str) -> str:
        async def create(services: Services) -> str:
            async with services.write() as session:
                return (await factories.create_user(session, name=name))[1]

        return str(self.make(create))


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    patch = pytest.MonkeyPatch()
    patch.setattr(serve, "_is_loopback", lambda listening: listening.getsockname()[0] == PLAIN)
    port = free_port()
    settings = Settings(data=tmp_path_factory.mktemp("tls"), allowed_hosts=SECURE, public_url=f"https://{SECURE}:{port}", database_url=None)
    certificate = own_certificate(settings, [SECURE])
    app = create_app(settings.model_copy(update={"tls_ca": certificate.authority}), with_loops=False)
    server = CoordinatorServer(configuration(app), certificate)
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve_until_told() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve(listen([PLAIN, SECURE], port))

    thread = threading.Thread(target=lambda: asyncio.run(serve_until_told()))
    thread.start()
    try:
        wait_until(lambda: server.started and len(server.servers) == 2, "the start of the server", seconds=START_SECONDS)
        yield Coordinator(app, server, certificate, port, loops[0])
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
        gc.unfreeze()
        patch.undo()


def join(coordinator: Coordinator, data: Path, token: str, *more: str) -> Credential:
    folder = AgentFolder(data)
    folder.create()
    settings = read_settings(["--server", coordinator.url, "--token", token, "--name", data.name, "--data", str(data), *more])
    return asyncio.run(credential_for(settings, folder))


def test_an_agent_joins_by_its_token_alone_and_keeps_the_authority(coordinator: Coordinator, tmp_path: Path) -> None:
    credential = join(coordinator, tmp_path / "one", coordinator.token())
    assert credential.authority == coordinator.authority
    again = join(coordinator, tmp_path / "one", "pj_not_needed_any_more")
    assert again == credential


def test_everything_of_an_agent_goes_over_tls(coordinator: Coordinator, tmp_path: Path) -> None:
    credential = join(coordinator, tmp_path / "two", coordinator.token())
    headers = {"Authorization": f"Bearer {credential.credential}"}
    with httpx.Client(base_url=coordinator.url, headers=headers, verify=credential.tls or True) as http:
        assert http.post(UPLOAD_PATH, content=b'{"batches": []}').status_code == 200
    channel = f"wss://{SECURE}:{coordinator.port}{CHANNEL_PATH}"
    with websockets.sync.client.connect(channel, ssl=credential.tls, additional_headers=headers, open_timeout=START_SECONDS) as connection:
        connection.send("{}")
        with pytest.raises(websockets.exceptions.ConnectionClosedError, match="missing required field"):  # no hello, but it was heard
            connection.recv(timeout=START_SECONDS)
    order = KeeperOrder(
        session_id="s",
        server=f"wss://{SECURE}:{coordinator.port}",
        credential="pn_wrong",
        node="two",
        rank=0,
        generation=1,
        authority=coordinator.authority,
    )
    with pytest.raises(websockets.exceptions.ConnectionClosedError, match="no node's credential"):  # it was heard
        asyncio.run(find_client(order))


def test_a_token_of_another_coordinator_is_not_sent_here(coordinator: Coordinator, tmp_path: Path) -> None:
    ensure_certificate(tmp_path / "other", ["other"], datetime.now(UTC))
    wrong = coordinator.token(authority=CertificateFiles(tmp_path / "other").authority.read_text())
    with pytest.raises(JoinRefusedError, match=r"and sha256:\w+ was expected"):
        join(coordinator, tmp_path / "three", wrong)
    right = with_fingerprint(split_token(wrong)[0], fingerprint_of(coordinator.authority))
    assert join(coordinator, tmp_path / "three", right).node_id, "the token was spent on a refusal"


def test_a_token_without_a_fingerprint_needs_an_authority_that_is_known(coordinator: Coordinator, tmp_path: Path) -> None:
    token = split_token(coordinator.token())[0]
    with pytest.raises(JoinRefusedError, match="a certificate that is not believed here"):
        join(coordinator, tmp_path / "four", token)
    authority = tmp_path / "ca.pem"
    authority.write_text(coordinator.authority)
    assert join(coordinator, tmp_path / "four", token, "--ca", str(authority)).authority == coordinator.authority


def test_plain_http_is_answered_on_loopback_alone(coordinator: Coordinator) -> None:
    assert httpx.get(f"http://{PLAIN}:{coordinator.port}/healthz").status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{SECURE}:{coordinator.port}/healthz")


def test_the_session_cookie_is_secure(coordinator: Coordinator) -> None:
    with httpx.Client(base_url=coordinator.url, verify=ssl_of(coordinator)) as http:
        answer = http.post("/api/v1/auth/login", json={"token": coordinator.key("vera")}, headers={"Origin": coordinator.url})
    cookies = answer.headers.get_list("set-cookie")
    assert answer.is_success, answer.text
    assert [cookie for cookie in cookies if cookie.startswith(f"__Host-paceline_{coordinator.port}=")], cookies
    assert all("Secure" in cookie for cookie in cookies)


def test_the_command_line_believes_a_pinned_authority_and_no_unknown_one(coordinator: Coordinator) -> None:
    key = coordinator.key("ada")
    unknown = ClientSettings(Setting(coordinator.url, "test"), Setting(key, "test"))
    with RestClient(unknown) as client, pytest.raises(NotBelievedError) as refused:
        client.get("/auth/me")
    assert f"paceline login --server {coordinator.url}" in str(refused.value.hint)
    pinned = ClientSettings(unknown.server, unknown.api_key, authority=Setting(coordinator.authority, "test"))
    with RestClient(pinned) as client:
        assert client.get("/auth/me")["name"] == "ada"
        assert client.stream_url("/x").startswith("wss://")


def test_an_authority_is_fetched_and_compared(coordinator: Coordinator) -> None:
    assert fetch_authority(coordinator.url, fingerprint_of(coordinator.authority)) == coordinator.authority
    with pytest.raises(TrustError, match="was expected"):
        fetch_authority(coordinator.url, "sha256:" + "0" * 64)


def test_an_invitation_carries_the_fingerprint(coordinator: Coordinator) -> None:
    with httpx.Client(
        base_url=coordinator.url, headers={"Authorization": f"Bearer {coordinator.key('root')}"}, verify=ssl_of(coordinator)
    ) as http:
        invitation = http.post("/api/v1/cluster/nodes", json={}, headers={"Idempotency-Key": "1"}).json()
    assert split_token(invitation["token"])[1] == fingerprint_of(coordinator.authority)
    assert invitation["command"] == f"paceline worker --server {coordinator.url} --token {invitation['token']}"


def test_a_renewed_certificate_is_shown_to_new_connections_without_a_restart(coordinator: Coordinator) -> None:
    before = ssl.get_server_certificate((SECURE, coordinator.port))
    assert not coordinator.certificate.refresh(datetime.now(UTC))
    assert coordinator.certificate.refresh(datetime.now(UTC) + SERVER_LIFE - RENEW_BEFORE + timedelta(hours=1))
    assert ssl.get_server_certificate((SECURE, coordinator.port)) != before


def ssl_of(coordinator: Coordinator) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=coordinator.authority)
