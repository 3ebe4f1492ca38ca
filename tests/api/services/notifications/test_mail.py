"""Mail over real SMTP: what is sent, what each reply means, and that nothing a user writes becomes a header."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from paceline.api.services.notifications import mail, messages
from paceline.api.services.notifications.messages import Notification
from paceline.api.settings import Settings
from tests import mail_server
from tests.factories import START
from tests.mail_server import MailServer

TO = ["ops@example.org", "vera@example.org"]
MESSAGE = Notification(
    event="failed", time=START, title="Job gpt failed: rank 1 raised KeyError", details=[("Project", "vision")], url="https://p/jobs/1"
)


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server.serve() as server:
        yield server


def settings_of(server: MailServer, **changes: object) -> Settings:
    given = {"smtp_host": "127.0.0.1", "smtp_port": server.port, "smtp_security": "none", "smtp_from": "paceline@example.org"}
    return Settings.model_validate(given | changes)


async def test_a_mail_arrives_as_text_with_its_link(server: MailServer) -> None:
    outcome = await mail.send(settings_of(server), TO, MESSAGE, "d-1", START)
    assert outcome.delivered
    (got,) = server.received
    assert (got.sender, got.recipients) == ("paceline@example.org", TO)
    assert got.message["Subject"] == "[Paceline] Job gpt failed: rank 1 raised KeyError"
    assert got.message["Message-ID"] == "<d-1@example.org>"
    assert got.message["Auto-Submitted"] == "auto-generated"
    text = got.message.get_content()
    assert "Project: vision" in text
    assert "https://p/jobs/1" in text


@pytest.mark.parametrize(
    "name",
    ["a\r\nBcc: evil@example.org", "a\nSubject: x\n\nbody", "a\u2028Bcc: e@x.org", "a\x0bBcc: e@x", "a\x85Bcc: e@x", "\0", "e" * 9999],
)
async def test_no_name_adds_a_header(server: MailServer, name: str) -> None:
    hostile = Notification(event="failed", time=START, title=f"Job {name} failed", details=[("Project", name)])
    outcome = await mail.send(settings_of(server), TO, hostile, "d-1", START)
    assert outcome.delivered
    (got,) = server.received
    assert got.message["Bcc"] is None
    assert sorted(got.message.keys()) == sorted(set(got.message.keys()))
    assert len(got.message["Subject"]) <= mail.LONGEST_SUBJECT


async def test_unicode_survives_and_a_line_with_a_dot_does_not_end_the_mail(server: MailServer) -> None:
    told = Notification(event="failed", time=START, title="Job Zürich-東京 🚲 failed", details=[("Said", "x\n.\nQUIT")])
    await mail.send(settings_of(server), TO, told, "d-1", START)
    (got,) = server.received
    assert got.message["Subject"] == "[Paceline] Job Zürich-東京 🚲 failed"
    assert "QUIT" in got.message.get_content()


@pytest.mark.parametrize(("verdict", "again"), [("451 try later", True), ("554 no spam", False)])
async def test_a_refusal_for_now_is_tried_again(server: MailServer, verdict: str, again: bool) -> None:
    server.verdict = verdict
    outcome = await mail.send(settings_of(server), TO, MESSAGE, "d-1", START)
    assert (outcome.delivered, outcome.again, outcome.answer) == (False, again, f"SMTP {verdict[:3]}: {verdict[4:]}")


async def test_a_mail_that_one_recipient_does_not_get_says_who(server: MailServer) -> None:
    server.refuses = {TO[0]: "550 no such user"}
    outcome = await mail.send(settings_of(server), TO, MESSAGE, "d-1", START)
    assert (outcome.delivered, outcome.answer) == (True, f"taken, but not for {TO[0]}")
    server.refuses = dict.fromkeys(TO, "550 no such user")
    outcome = await mail.send(settings_of(server), TO, MESSAGE, "d-1", START)
    assert (outcome.delivered, outcome.again) == (False, False)


@pytest.mark.parametrize("sender", ["<ops@example.org>", "Ops <ops@example.org>", "ops@", "ops@[1.2.3.4", "ops"])
async def test_a_sender_that_is_no_address_ends_the_delivery_and_is_named(server: MailServer, sender: str) -> None:
    outcome = await mail.send(settings_of(server, smtp_from=sender), TO, MESSAGE, "d-1", START)
    assert (outcome.delivered, outcome.again) == (False, False)
    assert outcome.answer == f"the mail cannot be written: PACELINE_SMTP_FROM={sender} is no e-mail address such as ops@example.org"


async def test_a_user_name_that_is_no_address_asks_for_a_sender(server: MailServer) -> None:
    outcome = await mail.send(settings_of(server, smtp_from="", smtp_user="apikey"), TO, MESSAGE, "d-1", START)
    assert outcome.answer.endswith("PACELINE_SMTP_USER is no e-mail address such as ops@example.org; set PACELINE_SMTP_FROM to one")


async def test_a_server_that_is_away_is_tried_again(server: MailServer) -> None:
    server.hangs_up = True
    outcome = await mail.send(settings_of(server), TO, MESSAGE, "d-1", START)
    assert (outcome.delivered, outcome.again) == (False, True)


async def test_a_server_without_tls_gets_no_mail_unless_that_was_allowed(server: MailServer) -> None:
    outcome = await mail.send(settings_of(server, smtp_security="starttls"), TO, MESSAGE, "d-1", START)
    assert (outcome.delivered, outcome.again) == (False, False)
    assert server.received == []
    assert "STARTTLS" in outcome.answer


@pytest.mark.parametrize(
    ("given", "port"),
    [
        ({}, 587),
        ({"smtp_security": "starttls"}, 587),
        ({"smtp_security": "tls"}, 465),
        ({"smtp_security": "none"}, 587),
        ({"smtp_security": "tls", "smtp_port": 2465}, 2465),
    ],
)
async def test_tls_without_a_port_goes_to_the_port_of_tls(monkeypatch: pytest.MonkeyPatch, given: dict[str, object], port: int) -> None:
    dialled: list[tuple[str, int]] = []

    def refuse(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        dialled.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    settings = Settings.model_validate({"smtp_host": "mail.example.org"} | given)
    assert (await mail.send(settings, TO, MESSAGE, "d-1", START)).again
    assert dialled == [("mail.example.org", port)]


async def test_without_a_server_the_answer_names_the_setting() -> None:
    assert "PACELINE_SMTP_HOST" in (await mail.send(Settings.model_validate({}), TO, MESSAGE, "d-1", START)).answer


async def test_a_digest_lists_the_first_and_counts_the_others(server: MailServer) -> None:
    await mail.send(settings_of(server), TO, messages.digest_of([f"Job {n} failed" for n in range(300)], "", START), "d-1", START)
    text = server.received[0].message.get_content()
    assert "Job 19 failed" in text
    assert "Job 20 failed" not in text
    assert "and 280 more" in text
