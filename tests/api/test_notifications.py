"""Channels, rules, tests and the history over REST: who may, what is refused, and that no secret comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.settings import Settings
from tests import factories, webhook_receiver
from tests.conftest import Connect
from tests.webhook_receiver import Answer, WebhookReceiver

NEWS = "/api/v1/notifications"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"notify_allow": "127.0.0.1", "smtp_host": "127.0.0.1", "smtp_port": 9})


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver.serve() as receiver:
        yield receiver


async def as_role(services: Services, connect: Connect, role: str) -> httpx.AsyncClient:
    async with services.write() as session:
        _, key = await factories.create_user(session, name=f"a-{role}", role=role)
    return connect(key)


async def add(client: httpx.AsyncClient, receiver: WebhookReceiver, **changes: Any) -> httpx.Response:
    return await client.post(f"{NEWS}/channels", json={"name": "hook", "kind": "webhook", "url": receiver.url} | changes)


async def test_the_secret_is_shown_once_and_the_address_never(client: httpx.AsyncClient, receiver: WebhookReceiver) -> None:
    made = await add(client, receiver)
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert secret.startswith("whsec_")
    for path in ("channels", "deliveries", "rules"):
        assert "T0KEN" not in (text := (await client.get(f"{NEWS}/{path}")).text)
        assert secret not in text
    assert "T0KEN" not in made.text
    assert made.json()["target"] == "127.0.0.1"
    for page in ("/api/v1/events", "/api/v1/audit"):
        text = (await client.get(page)).text
        assert "made the webhook channel hook" in text
        assert "T0KEN" not in text


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"url": "https://10.0.0.1/x"}, "target_refused", "private"),
        ({"url": "https://2130706433:444/"}, None, ""),
        ({"url": "http://169.254.169.254/latest"}, "target_refused", "link-local"),
        ({"url": "ftp://example.org"}, "target_refused", "https://"),
        ({"url": None}, "invalid_request", "url"),
        ({"recipients": ["a@example.org"]}, "invalid_request", "recipients"),
        ({"kind": "email"}, "invalid_request", "recipients"),
        ({"kind": "email", "url": None, "recipients": ["a@example.org\r\nBcc: x@y"]}, "invalid_request", "e-mail address"),
        ({"kind": "email", "url": None, "recipients": ["Ada <a@example.org>"]}, "invalid_request", "e-mail address"),
        ({"kind": "pager"}, "invalid_request", "kind"),
        ({"name": "a\nb"}, "invalid_request", "name"),
        ({"name": ""}, "invalid_request", "name"),
        ({"url": "https://example.org/" + "x" * 3000}, "invalid_request", "url"),
    ],
)
async def test_a_channel_that_cannot_work_is_refused(
    client: httpx.AsyncClient, receiver: WebhookReceiver, changes: dict[str, Any], code: str | None, said: str
) -> None:
    answer = await add(client, receiver, **changes)
    if code is None:  # 127.0.0.1, which is allowed here, in another spelling
        assert answer.status_code == 201
        return
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert said in answer.text
    assert (await client.get(f"{NEWS}/channels")).json() == []


async def test_email_without_a_mail_server_names_the_setting(connect: Connect, services: Services, client: httpx.AsyncClient) -> None:
    object.__setattr__(services, "settings", services.settings.model_copy(update={"smtp_host": ""}))
    answer = await client.post(f"{NEWS}/channels", json={"name": "ops", "kind": "email", "recipients": ["a@example.org"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "no_mail_server")
    assert "PACELINE_SMTP_HOST" in answer.text


async def test_a_name_is_taken_once(client: httpx.AsyncClient, receiver: WebhookReceiver) -> None:
    await add(client, receiver)
    assert (await add(client, receiver)).json()["code"] == "already_exists"
    await add(client, receiver, name="other")
    assert (await client.patch(f"{NEWS}/channels/other", json={"name": "hook"})).json()["code"] == "already_exists"
    assert (await client.patch(f"{NEWS}/channels/other", json={"name": "new"})).json()["name"] == "new"


async def test_a_test_says_what_the_receiver_answered(client: httpx.AsyncClient, receiver: WebhookReceiver) -> None:
    await add(client, receiver)
    assert (await client.post(f"{NEWS}/channels/hook/test")).json()["state"] == "delivered"
    assert receiver.received[0].document["event"] == "test"
    receiver.answers = [Answer(500, b"on fire")]
    told = (await client.post(f"{NEWS}/channels/hook/test")).json()
    assert (told["state"], told["answer"], told["next_attempt_at"]) == ("failed", "HTTP 500: on fire", None)
    (channel,) = (await client.get(f"{NEWS}/channels")).json()
    assert channel["last"]["answer"] == "HTTP 500: on fire"
    assert (await client.post(f"{NEWS}/channels/none/test")).status_code == 404
    audit = (await client.get("/api/v1/audit", params={"action": "notification"})).json()["items"]
    assert [entry["action"] for entry in audit] == ["notification.channel_tested"] * 2 + ["notification.channel_created"]


async def test_a_message_that_has_ended_is_sent_again_as_one_of_its_own(client: httpx.AsyncClient, receiver: WebhookReceiver) -> None:
    await add(client, receiver)
    first = (await client.post(f"{NEWS}/channels/hook/test")).json()
    answer = await client.post(f"{NEWS}/deliveries/{first['id']}/send-again")
    assert answer.status_code == 201
    assert (answer.json()["state"], answer.json()["title"]) == ("pending", first["title"])
    assert answer.json()["id"] != first["id"]
    waiting = await client.post(f"{NEWS}/deliveries/{answer.json()['id']}/send-again")
    assert (waiting.status_code, waiting.json()["code"]) == (409, "still_pending")
    await client.patch(f"{NEWS}/channels/hook", json={"enabled": False})
    assert (await client.post(f"{NEWS}/deliveries/{first['id']}/send-again")).status_code == 404
    assert (await client.post(f"{NEWS}/deliveries/none/send-again")).status_code == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"events": []}, "events"),
        ({"events": ["exploded"]}, "events"),
        ({"events": ["failed", "failed"]}, "twice"),
        ({"events": ["failed"], "queued_minutes": 5}, "queued_long"),
        ({"events": ["goodput_low"], "goodput_below": 1.5}, "goodput_below"),
        ({"events": ["goodput_low"], "goodput_below": "NaN"}, "goodput_below"),
        ({"events": ["queued_long"], "queued_minutes": 0}, "queued_minutes"),
        ({"events": ["queued_long"], "queued_minutes": 10**12}, "queued_minutes"),
        ({"events": ["disk_low", "failed"], "project": "vision"}, "disk_low"),
        ({"events": ["disk_low"], "mine": True}, "disk_low"),
        ({"events": ["failed"], "project": "a\0b"}, "NUL"),
    ],
)
async def test_a_rule_that_makes_no_sense_is_refused(
    client: httpx.AsyncClient, receiver: WebhookReceiver, body: dict[str, Any], said: str
) -> None:
    await add(client, receiver)
    answer = await client.post(f"{NEWS}/rules", json={"channel": "hook", **body})
    assert answer.status_code == 422, answer.text
    assert said in answer.text


async def test_a_rule_is_made_once(client: httpx.AsyncClient, receiver: WebhookReceiver) -> None:
    await add(client, receiver)
    rule = {"channel": "hook", "events": ["failed", "queued_long"], "project": "vision"}
    assert (await client.post(f"{NEWS}/rules", json=rule)).status_code == 201
    again = await client.post(f"{NEWS}/rules", json=rule | {"events": ["queued_long", "failed"], "queued_minutes": 30})
    assert (again.status_code, again.json()["code"]) == (409, "already_exists")
    assert (
        "the channel hook has this rule already (queued longer than 30 min, failed: all jobs in the project vision)"
        in again.json()["detail"]
    )
    for other in ({"queued_minutes": 31}, {"project": None}, {"mine": True}, {"events": ["failed"]}):
        made = await client.post(f"{NEWS}/rules", json=rule | other)
        assert made.status_code == 201, made.text
    changed = await client.put(f"{NEWS}/rules/{made.json()['id']}", json=rule)
    assert (changed.status_code, changed.json()["code"]) == (409, "already_exists")
    same = await client.put(f"{NEWS}/rules/{made.json()['id']}", json=rule | {"events": ["failed"]})
    assert same.status_code == 200, "a rule may stay as it is"


async def test_a_rule_says_what_it_does(client: httpx.AsyncClient, receiver: WebhookReceiver) -> None:
    await add(client, receiver)
    for body, text in (
        ({"events": ["failed", "queued_long"], "project": "vision"}, "failed, queued longer than 30 min: all jobs in the project vision"),
        ({"events": ["goodput_low"], "goodput_below": 0.9, "mine": True}, "goodput below 90%: own jobs of admin"),
        ({"events": ["disk_low"]}, "disk low"),
    ):
        assert (await client.post(f"{NEWS}/rules", json={"channel": "hook", **body})).json()["text"] == text
    (first, *_) = rules = (await client.get(f"{NEWS}/rules")).json()
    assert len(rules) == 3
    changed = await client.put(f"{NEWS}/rules/{first['id']}", json={"channel": "hook", "events": ["nan"], "mine": True})
    assert (changed.json()["text"], changed.json()["id"]) == ("NaN loss: own jobs of admin", first["id"])
    assert (await client.put(f"{NEWS}/rules/{first['id']}", json={"channel": "hook", "events": []})).status_code == 422
    assert (await client.get(f"{NEWS}/rules")).json()[0] == changed.json()
    assert (await client.delete(f"{NEWS}/rules/{first['id']}")).status_code == 204
    assert (await client.delete(f"{NEWS}/rules/{first['id']}")).status_code == 404
    assert (await client.post(f"{NEWS}/rules", json={"channel": "none", "events": ["failed"]})).status_code == 404


async def test_members_make_rules_about_their_own_jobs_alone(
    client: httpx.AsyncClient, services: Services, connect: Connect, receiver: WebhookReceiver
) -> None:
    await add(client, receiver)
    await add(client, receiver, name="pager", for_members=False)
    async with await as_role(services, connect, "member") as member:
        for body, code in (
            ({"channel": "hook", "events": ["failed"]}, "forbidden"),
            ({"channel": "pager", "events": ["failed"], "mine": True}, "forbidden"),
            ({"channel": "hook", "events": ["disk_low"]}, "forbidden"),
        ):
            assert (await member.post(f"{NEWS}/rules", json=body)).json()["code"] == code
        own = (await member.post(f"{NEWS}/rules", json={"channel": "hook", "events": ["failed"], "mine": True})).json()
        assert own["owner_id"] == own["created_by_id"]
        other = (await client.post(f"{NEWS}/rules", json={"channel": "hook", "events": ["failed"]})).json()
        assert (await member.delete(f"{NEWS}/rules/{other['id']}")).json()["code"] == "not_the_owner"
        mine = {"channel": "hook", "events": ["nan"], "mine": True}
        assert (await member.put(f"{NEWS}/rules/{other['id']}", json=mine)).json()["code"] == "not_the_owner"
        assert (await member.put(f"{NEWS}/rules/{own['id']}", json={**mine, "mine": False})).json()["code"] == "forbidden"
        by_admin = (await client.put(f"{NEWS}/rules/{own['id']}", json=mine)).json()
        assert (by_admin["owner_id"], by_admin["events"]) == (own["owner_id"], ["nan"])
        assert (await member.delete(f"{NEWS}/rules/{own['id']}")).status_code == 204


async def test_a_rule_that_another_admin_makes_one_of_own_jobs_is_about_its_makers(
    client: httpx.AsyncClient, services: Services, connect: Connect, receiver: WebhookReceiver
) -> None:
    """It was about the jobs of whoever had changed it, and was shown as the maker's."""
    await add(client, receiver)
    made = (await client.post(f"{NEWS}/rules", json={"channel": "hook", "events": ["failed"]})).json()
    async with await as_role(services, connect, "admin") as other:
        changed = (await other.put(f"{NEWS}/rules/{made['id']}", json={"channel": "hook", "events": ["failed"], "mine": True})).json()
    assert (changed["owner_id"], changed["text"]) == (made["created_by_id"], "failed: own jobs of admin")


@pytest.mark.parametrize("role", ["viewer", "member"])
async def test_who_is_no_admin_sees_and_changes_no_channel(
    client: httpx.AsyncClient, services: Services, connect: Connect, receiver: WebhookReceiver, role: str
) -> None:
    await add(client, receiver)
    await client.post(f"{NEWS}/channels", json={"name": "ops", "kind": "email", "recipients": ["a@example.org"]})
    tested = (await client.post(f"{NEWS}/channels/hook/test")).json()
    async with await as_role(services, connect, role) as other:
        seen = (await other.get(f"{NEWS}/channels")).json()
        assert [(each["target"], each["recipients"]) for each in seen] == [("127.0.0.1", []), ("1 recipient", [])]
        assert (await other.get(f"{NEWS}/deliveries")).status_code == 200
        for method, path in (
            ("POST", "channels"), ("PATCH", "channels/hook"), ("DELETE", "channels/hook"), ("POST", "channels/hook/test"),
            ("POST", f"deliveries/{tested['id']}/send-again"),
        ):  # fmt: skip
            answer = await other.request(
                method, f"{NEWS}/{path}", json={"name": "x", "kind": "webhook", "url": receiver.url} if method != "DELETE" else None
            )
            assert answer.status_code in (403, 422), (path, answer.text)
            if path == "channels/hook":
                assert answer.json()["code"] in ("forbidden", "invalid_request")
    assert len((await client.get(f"{NEWS}/channels")).json()) == 2


async def test_the_history_is_paged_and_filtered(client: httpx.AsyncClient, receiver: WebhookReceiver) -> None:
    await add(client, receiver)
    await add(client, receiver, name="other")
    receiver.answers = [Answer(404, b"")]
    for name in ("hook", "hook", "other"):
        await client.post(f"{NEWS}/channels/{name}/test")
    page = (await client.get(f"{NEWS}/deliveries", params={"limit": 2})).json()
    rest = (await client.get(f"{NEWS}/deliveries", params={"limit": 2, "cursor": page["next_cursor"]})).json()
    assert [len(page["items"]), len(rest["items"]), rest["next_cursor"]] == [2, 1, None]
    assert [each["channel_name"] for each in (await client.get(f"{NEWS}/deliveries?channel=other")).json()["items"]] == ["other"]
    assert len((await client.get(f"{NEWS}/deliveries?state=failed")).json()["items"]) == 1
    assert (await client.get(f"{NEWS}/deliveries?state=lost")).status_code == 400
    assert (await client.get(f"{NEWS}/deliveries?channel=none")).json()["items"] == []


async def test_a_create_that_is_repeated_makes_one(client: httpx.AsyncClient, receiver: WebhookReceiver) -> None:
    headers = {"Idempotency-Key": "k"}
    body = {"name": "hook", "kind": "webhook", "url": receiver.url}
    assert (await client.post(f"{NEWS}/channels", json=body, headers=headers)).status_code == 201
    again = await client.post(f"{NEWS}/channels", json=body, headers=headers)
    assert (again.status_code, again.json()["code"]) == (409, "already_created")
