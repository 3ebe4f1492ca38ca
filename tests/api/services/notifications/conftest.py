"""A coordinator that may send to this machine, a receiver of webhooks there, and hands that make channels, rules and news."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.loops.deliveries import Courier
from paceline.api.loops.due_looks import DueLooks
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.notifications import facts
from paceline.api.settings import Settings
from paceline.cluster.states import JobState
from paceline.db.models.jobs import JobRow
from tests import factories, mail_server, webhook_receiver
from tests.factories import START
from tests.mail_server import MailServer
from tests.webhook_receiver import WebhookReceiver

NEWS = "/api/v1/notifications"


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with mail_server.serve() as server:
        yield server


@pytest.fixture
def settings(settings: Settings, mail: MailServer) -> Settings:
    """Notifications may go to this machine, whose mail server is the test's."""
    return settings.model_copy(
        update={
            "notify_allow": "127.0.0.1",
            "smtp_host": "127.0.0.1",
            "smtp_port": mail.port,
            "smtp_security": "none",
            "smtp_from": "p@example.org",
        }
    )


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver.serve() as receiver:
        yield receiver


@dataclass
class News:
    """One coordinator whose time is the test's."""

    services: Services
    client: httpx.AsyncClient
    receiver: WebhookReceiver
    now: datetime = START

    def at(self, now: datetime) -> Services:
        """The same coordinator at another time."""
        self.now = now
        return replace(self.services, now=lambda: self.now)

    async def channel(self, name: str = "hook", **changes: Any) -> dict[str, Any]:
        body = {"name": name, "kind": "webhook", "url": self.receiver.url} | changes
        return self._good(await self.client.post(f"{NEWS}/channels", json=body))

    async def rule(self, *events: str, channel: str = "hook", **changes: Any) -> dict[str, Any]:
        return self._good(await self.client.post(f"{NEWS}/rules", json={"channel": channel, "events": list(events), **changes}))

    async def deliveries(self, **query: Any) -> list[dict[str, Any]]:
        """The history, the oldest first."""
        answer = await self.client.get(f"{NEWS}/deliveries", params={"limit": 200, **query})
        items: list[dict[str, Any]] = answer.json()["items"]
        return items[::-1]

    async def job(self, name: str = "gpt", state: JobState = JobState.RUNNING, **columns: Any) -> JobRow:
        async with self.services.write() as session:
            return await factories.create_job(session, spec=factories.job_spec(name=name), state=state, **columns)

    async def end(self, job: JobRow, to: str = "failed", cause: str = "rank 0: KeyError: 'x'; no restart is left") -> None:
        """Record the end of a job, as the scheduler does."""
        async with self.services.write() as session:
            data = {"from": "stopping", "to": to, "reason": None, "restarts": 0}
            await job_lifecycle.record_event(session, job, "job.state", SYSTEM, cause, f"stopping -> {to}", START, data)

    async def read(self, now: datetime | None = None) -> None:
        """Turn all of the history into deliveries."""
        while await facts.read_events(self.services, now or self.now):
            pass

    async def deliver(self, now: datetime | None = None) -> None:
        """Take one step of the delivery loop."""
        now = now or self.now
        await Courier(self.at(now), DueLooks(self.at(now))).step_once(now)

    @staticmethod
    def _good(answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code == 201, answer.text
        document: dict[str, Any] = answer.json()
        return document


@pytest.fixture
async def news(services: Services, client: httpx.AsyncClient, receiver: WebhookReceiver) -> News:
    made = News(services, client, receiver)
    await made.read()
    return made
