"""Waits for a coordinator that is started again, also behind a proxy, which answers in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.client import RestClient
from paceline.cli.code_bundle import with_code
from paceline.cli.errors import ApiProblemError, CliError, OutcomeUnknownError, UnreachableError, WaitTimedOutError
from paceline.cli.settings import ClientSettings, Setting
from paceline.cli.waiting import patient, wait_for_slots, wait_for_state
from tests.cli.fake_coordinator import Answer, FakeCoordinator, Request, job, problem

JOB = job()["id"]
ONE = f"/training/jobs/{JOB}"
AWAY = [
    Answer(hang_up=True),
    Answer(502, b"<html>502 Bad Gateway</html>"),
    Answer(504, b"<html>504 Gateway Time-out</html>"),
    problem(503, "busy", "the database does not answer"),
]
kinds_of_away = pytest.mark.parametrize("away", AWAY, ids=["hang up", "502", "504", "busy"])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.cli.waiting.PATIENT_SECONDS", 0.01)
    monkeypatch.setattr("paceline.cli.client.FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("paceline.cli.client.LONGEST_RETRY_SECONDS", 0.01)


@pytest.fixture
def client(coordinator: FakeCoordinator) -> Iterator[RestClient]:
    with RestClient(ClientSettings(Setting(coordinator.url, "test"), Setting("pk_test", "test"))) as client:
        yield client


@kinds_of_away
def test_a_coordinator_that_is_away_is_asked_again(client: RestClient, coordinator: FakeCoordinator, away: Answer) -> None:
    coordinator.on("GET", ONE, away, away, Answer(200, job()))
    assert patient(lambda: client.job(JOB)).id == JOB


def test_patience_ends_with_what_came_last(client: RestClient, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(502, b"<html>502 Bad Gateway</html>"))
    with pytest.raises(ApiProblemError, match="502 Bad Gateway"):
        patient(lambda: client.job(JOB), retries=2)
    assert len(coordinator.sent("GET", ONE)) == 3


@pytest.mark.parametrize("answer", [problem(404, "not_found", "no such job"), problem(503, "disk_low", "free some")])
def test_an_answer_of_its_own_is_no_absence(client: RestClient, coordinator: FakeCoordinator, answer: Answer) -> None:
    coordinator.on("GET", ONE, answer)
    with pytest.raises(ApiProblemError):
        patient(lambda: client.job(JOB))
    assert len(coordinator.sent("GET", ONE)) == 1


@kinds_of_away
@pytest.mark.parametrize("send", [lambda client: client.create("/x", {}), lambda client: client.put_bytes("/x", b"a")], ids=["POST", "PUT"])
def test_what_is_harmless_twice_is_sent_again_with_the_same_key(
    client: RestClient, coordinator: FakeCoordinator, away: Answer, send: Callable[[RestClient], object]
) -> None:
    for method in ("POST", "PUT"):
        coordinator.on(method, "/x", away, Answer(200, "done"))
    assert send(client) == "done"
    assert len(coordinator.requests) == 2
    assert len({request.headers.get("idempotency-key") for request in coordinator.requests}) == 1


@pytest.mark.parametrize("lost", [AWAY[0], AWAY[1]], ids=["hang up", "502"])
def test_code_is_sent_through_a_restart_behind_a_proxy(
    client: RestClient, coordinator: FakeCoordinator, tmp_path: Path, lost: Answer
) -> None:
    """Each change gets eight answers that are none: twice what is tried without patience."""
    (tmp_path / "train.py").write_text("x")
    to_come = {"PUT": [lost] * 8 + [Answer(200, {"next_chunk": 0})], "chunk": [lost] * 8 + [Answer(200, {"next_chunk": None})]}

    def answer(request: Request) -> Answer:
        if request.method == "GET":
            return problem(404, "not_found", "no such bundle")
        return to_come["chunk" if "/chunks/" in request.path else "PUT"].pop(0)

    coordinator.fallback = answer
    spec = with_code(client, {}, tmp_path)
    assert spec["environment"]["code"]["bundle"]
    assert to_come == {"PUT": [], "chunk": []}


def test_code_that_does_not_arrive_leaves_no_unknown_outcome(
    client: RestClient, coordinator: FakeCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.cli.waiting.PATIENT_SECONDS", 0.0)
    (tmp_path / "train.py").write_text("x")
    coordinator.fallback = lambda request: problem(404, "not_found", "no such bundle") if request.method == "GET" else Answer(hang_up=True)
    with pytest.raises(UnreachableError, match="no answer came") as failed:
        with_code(client, {}, tmp_path)
    assert "no job was submitted" in str(failed.value.hint)


@pytest.mark.parametrize(("answer", "error"), [(AWAY[1], OutcomeUnknownError), (AWAY[3], ApiProblemError)], ids=["proxy", "coordinator"])
def test_only_the_coordinators_own_word_tells_that_nothing_was_made(
    client: RestClient, coordinator: FakeCoordinator, answer: Answer, error: type[CliError]
) -> None:
    coordinator.on("POST", "/x", answer)
    with pytest.raises(error):
        client.create("/x", {})
    assert len(coordinator.sent("POST", "/x")) == 4


@pytest.mark.parametrize("server", ["train.example", "localhost:8000"])
def test_what_was_never_sent_is_no_unknown_outcome(server: str) -> None:
    """An address without a scheme: four attempts, and then "was sent, but no answer came"."""
    with RestClient(ClientSettings(Setting(server, "PACELINE_SERVER"), Setting("pk_test", "test"))) as client:
        for send in (lambda: client.create("/x", {}), lambda: client.put_bytes("/x", b"a")):
            with pytest.raises(UnreachableError, match="from PACELINE_SERVER"):
                send()


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout])
def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(
    client: RestClient, coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, error: type[httpx.TransportError]
) -> None:
    failures = iter([error("refused"), httpx.ReadError("lost"), error("refused"), error("refused"), error("refused")])

    def fail(*arguments: object, **options: object) -> NoReturn:
        raise next(failures)

    monkeypatch.setattr(httpx.Client, "request", fail)
    with pytest.raises(UnreachableError, match="refused"):
        client.create("/x", {})
    with pytest.raises(OutcomeUnknownError):
        client.create("/x", {})


def test_a_job_that_waits_for_slots_is_followed_through_a_restart(client: RestClient, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(hang_up=True), Answer(200, job()))
    wait_for_slots(client, parsed(job(state="queued"), Job), "cancels the job")
    assert len(coordinator.sent("GET", ONE)) == 2


def test_a_wait_for_an_end_goes_on_through_a_restart(client: RestClient, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()), Answer(hang_up=True), AWAY[1], Answer(200, job(state="completed")))
    assert wait_for_state(client, JOB, {"completed"}, timeout=60)["state"] == "completed"


def test_a_coordinator_that_was_never_there_is_told_at_once(client: RestClient, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(hang_up=True))
    with pytest.raises(UnreachableError):
        wait_for_state(client, JOB, {"completed"}, timeout=60)
    assert len(coordinator.sent("GET", ONE)) == 1


def test_a_wait_lasts_no_longer_than_it_was_told(client: RestClient, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ONE, Answer(200, job()))
    with pytest.raises(WaitTimedOutError, match="still running after 0 s"):
        wait_for_state(client, JOB, {"completed"}, timeout=0)
