"""What receivers get over real HTTP, and what each of their answers means."""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from paceline.api.services.notifications import webhooks
from paceline.api.services.notifications.addresses import AllowedTargets
from paceline.api.services.notifications.outcomes import AttemptOutcome
from tests import webhook_receiver
from tests.factories import START
from tests.webhook_receiver import Answer, WebhookReceiver

HERE = AllowedTargets.parse("127.0.0.1,localhost")


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver.serve() as receiver:
        yield receiver


async def post(url: str, allowed: AllowedTargets = HERE, document: Any = None, secret: str | None = "whsec_x") -> AttemptOutcome:
    return await webhooks.post(url, document or {"title": "hi"}, allowed, delivery_id="d-1", event="failed", secret=secret, now=START)


def verify(secret: str, body: bytes, header: str) -> bool:
    """The verifier of docs/notifications.md, word for word."""
    parts = dict(part.split("=", 1) for part in header.split(","))
    expected = hmac.new(secret.encode(), parts["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, parts["v1"])


async def test_a_request_is_signed_and_has_an_id(receiver: WebhookReceiver) -> None:
    outcome = await post(receiver.url, document={"title": "Zürich 東京 \u2028"})
    assert outcome == AttemptOutcome(True, "HTTP 200: ok")
    (got,) = receiver.received
    assert got.path == "/hook/T0KEN"
    assert got.document == {"title": "Zürich 東京 \u2028"}
    assert (got.headers["paceline-delivery"], got.headers["idempotency-key"], got.headers["paceline-event"]) == ("d-1", "d-1", "failed")
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert verify("whsec_x", got.body, got.headers["paceline-signature"])
    assert not verify("whsec_x", got.body + b" ", got.headers["paceline-signature"])
    assert not verify("whsec_y", got.body, got.headers["paceline-signature"])
    assert f"t={int(START.timestamp())}," in got.headers["paceline-signature"]


async def test_without_a_secret_there_is_no_signature(receiver: WebhookReceiver) -> None:
    await post(receiver.url, secret=None)
    assert "paceline-signature" not in receiver.received[0].headers


@pytest.mark.parametrize(
    ("status", "delivered", "again"),
    [(200, True, False), (204, True, False), (299, True, False), (400, False, False), (401, False, False), (404, False, False), (410, False, False),
     (408, False, True), (429, False, True), (500, False, True), (503, False, True)],
)  # fmt: skip
async def test_an_answer_ends_or_is_worth_another_attempt(receiver: WebhookReceiver, status: int, delivered: bool, again: bool) -> None:
    receiver.answers = [Answer(status, b"")]
    outcome = await post(receiver.url)
    assert (outcome.delivered, outcome.again, outcome.answer) == (delivered, again, f"HTTP {status}")


async def test_a_redirect_is_not_followed(receiver: WebhookReceiver) -> None:
    receiver.answers = [Answer(302, b"", {"Location": "http://169.254.169.254/latest/meta-data"})]
    outcome = await post(receiver.url)
    assert (outcome.delivered, outcome.again) == (False, False)
    assert "redirects are not followed" in outcome.answer
    assert len(receiver.received) == 1


async def test_retry_after_is_read_as_seconds_or_as_a_date(receiver: WebhookReceiver) -> None:
    date = (START + timedelta(minutes=2)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    receiver.answers = [Answer(429, b"", {"Retry-After": text}) for text in ("120", date, "soon", "inf")]
    assert [(await post(receiver.url)).retry_after for _ in range(4)] == [120.0, 120.0, None, None]


async def test_a_receiver_that_stalls_is_left(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "TOTAL_SECONDS", 0.3)
    receiver.answers = [Answer(stalls=True)]
    assert await post(receiver.url) == AttemptOutcome(False, "no answer within 0 s", again=True)


async def test_an_answer_without_end_is_left_after_its_beginning() -> None:
    """The receiver sends for ever: its answer counts, and only the beginning is read."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pour() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    while True:
                        connection.sendall(b"x" * 65536)
                except OSError:
                    return

        thread = threading.Thread(target=pour)
        thread.start()
        outcome = await post(f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join(timeout=5)
    assert not thread.is_alive()
    assert outcome.delivered
    assert len(outcome.answer) < 300


async def test_a_closed_port_is_worth_another_attempt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    outcome = await post(f"http://127.0.0.1:{port}/")
    assert (outcome.delivered, outcome.again) == (False, True)
    assert "no answer" in outcome.answer


async def test_a_refused_target_gets_no_connection(receiver: WebhookReceiver) -> None:
    outcome = await post(receiver.url, AllowedTargets())
    assert (outcome.delivered, outcome.again) == (False, False)
    assert "loopback" in outcome.answer
    assert receiver.received == []


async def test_a_name_that_is_bound_anew_after_the_check_gains_nothing(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name resolves to an allowed address once and to another one ever after: the connection goes to the first."""
    looks = list[str]()

    async def rebinding(host: str, port: int) -> list[str]:
        looks.append(host)
        return ["127.0.0.1"] if len(looks) == 1 else ["169.254.169.254"]

    monkeypatch.setattr("paceline.api.services.notifications.addresses.resolved", rebinding)
    outcome = await post(f"http://rebind.example:{receiver.port}/hook")
    assert outcome.delivered
    assert looks == ["rebind.example"]
    assert receiver.received[0].headers["host"] == f"rebind.example:{receiver.port}"


async def test_proxies_of_the_environment_are_not_used(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert (await post(receiver.url)).delivered


async def test_the_next_address_is_tried_where_the_first_takes_no_connection(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"]

    monkeypatch.setattr("paceline.api.services.notifications.addresses.resolved", two)
    assert (await post(f"http://two.example:{receiver.port}/", AllowedTargets.parse("two.example"))).delivered


def test_a_packed_answer_is_not_shown() -> None:
    assert webhooks.outcome_of(200, httpx.Headers(), "", START).answer == "HTTP 200"
