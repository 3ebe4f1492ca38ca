"""Sending: what fails is tried again, what is refused ends, a crash in between sends once more with the same id, a flood becomes a digest."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from paceline.api.loops.deliveries import Courier
from paceline.api.loops.due_looks import DueLooks
from paceline.api.services.notifications import deliveries, outcomes
from paceline.cluster.history.delivery_pace import MOST_ATTEMPTS, ONE_EVERY
from paceline.db.repositories import notifications as rows
from tests.api.services.notifications.conftest import NEWS, News
from tests.factories import START
from tests.mail_server import MailServer
from tests.webhook_receiver import Answer

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


@pytest.fixture
async def failing(news: News) -> News:
    """With a rule, and one failed job."""
    await news.channel()
    await news.rule("failed")
    await news.end(await news.job())
    await news.read()
    return news


async def only(news: News) -> tuple[str, int, str]:
    (row,) = await news.deliveries()
    return row["state"], row["attempts"], row["answer"]


async def test_what_was_delivered_is_not_sent_again(failing: News) -> None:
    for hours in range(3):
        await failing.deliver(START + hours * HOUR)
    assert len(failing.receiver.received) == 1
    assert await only(failing) == ("delivered", 1, "HTTP 200: ok")


async def test_a_server_in_trouble_is_tried_again_with_the_same_id(failing: News) -> None:
    failing.receiver.answers = [Answer(500, b"down"), Answer(503, b"")]
    await failing.deliver(START)
    assert await only(failing) == ("pending", 1, "HTTP 500: down")
    await failing.deliver(START + 3 * SECOND)  # too soon
    assert len(failing.receiver.received) == 1
    await failing.deliver(START + 7 * SECOND)
    await failing.deliver(START + 60 * SECOND)
    assert await only(failing) == ("delivered", 3, "HTTP 200: ok")
    assert len({each.headers["idempotency-key"] for each in failing.receiver.received}) == 1


async def test_retries_end(failing: News) -> None:
    failing.receiver.answers = [Answer(500, b"")] * 20
    for hours in range(20):
        await failing.deliver(START + hours * 2 * HOUR)
    assert await only(failing) == ("failed", MOST_ATTEMPTS, "HTTP 500")
    assert len(failing.receiver.received) == MOST_ATTEMPTS


@pytest.mark.parametrize(("status", "headers"), [(404, {}), (410, {}), (302, {"Location": "/"})])
async def test_a_refusal_ends_at_once(failing: News, status: int, headers: dict[str, str]) -> None:
    failing.receiver.answers = [Answer(status, b"", headers)]
    for hours in range(3):
        await failing.deliver(START + hours * HOUR)
    assert (await only(failing))[:2] == ("failed", 1)
    assert len(failing.receiver.received) == 1


async def test_a_wait_that_the_server_asks_for_is_kept(failing: News) -> None:
    failing.receiver.answers = [Answer(429, b"", {"Retry-After": "600"})]
    await failing.deliver(START)
    await failing.end(await failing.job("second"))
    await failing.read()
    await failing.deliver(START + 599 * SECOND)
    assert len(failing.receiver.received) == 1, "the other message waits as well: the server has asked its sender to"
    await failing.deliver(START + 601 * SECOND)
    assert len(failing.receiver.received) == 3


async def test_a_coordinator_that_dies_between_sending_and_storing_sends_once_more(failing: News, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(*_: object, **__: object) -> None:
        raise ConnectionAbortedError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "store", dies)
        with pytest.raises(ConnectionAbortedError):
            await failing.deliver(START)
    assert len(failing.receiver.received) == 1
    await failing.deliver(START + SECOND)  # the claim holds
    assert len(failing.receiver.received) == 1
    await failing.deliver(START + deliveries.CLAIM + SECOND)
    assert [each.headers["idempotency-key"] for each in failing.receiver.received] == [(await failing.deliveries())[0]["id"]] * 2
    assert (await only(failing))[:2] == ("delivered", 2)


async def test_an_answer_that_comes_after_its_claim_lapsed_changes_nothing(failing: News) -> None:
    services = failing.at(START)
    async with services.write() as session:
        (channel,) = {each["channel_id"] for each in await failing.deliveries()}
        (late,) = await deliveries.claim(session, channel, "", START)
    failing.receiver.answers = [Answer(404, b"")]
    await failing.deliver(START + deliveries.CLAIM + SECOND)
    async with services.write() as session:
        assert await deliveries.store(session, late, outcomes.delivered("late"), START) is None
    assert (await only(failing))[0] == "failed"


async def test_two_couriers_at_once_send_once(failing: News) -> None:
    for n in range(2):
        await failing.end(await failing.job(f"j-{n}"))
    await failing.read()
    services = failing.at(START)
    await asyncio.gather(*(Courier(services, DueLooks(services)).step_once(START) for _ in range(4)))
    assert len(failing.receiver.received) == 3
    assert len(set(failing.receiver.titles)) == 3


async def test_three_hundred_failures_are_nine_messages_and_a_digest(news: News) -> None:
    await news.channel()
    await news.rule("failed")
    for n in range(300):
        await news.end(await news.job(f"j-{n:03}"))
    await news.read()
    for _ in range(12):
        await news.deliver(START)
    assert len(news.receiver.received) == 10
    digest = news.receiver.received[-1].document
    assert (digest["event"], digest["title"], digest["count"], len(digest["lines"])) == ("digest", "291 notifications in one", 291, 20)
    assert news.receiver.titles[0].startswith("Job j-000 ")
    assert digest["lines"][0].startswith("Job j-009 ")
    async with news.services.control.read() as session:
        states = {row.state for row in await rows.deliveries_page(session, channel_id=None, state=None, before=None, limit=1000)}
    assert states == {"delivered"}


async def test_after_a_burst_one_message_follows_every_few_minutes(news: News) -> None:
    await news.channel()
    await news.rule("failed")
    for n in range(20):
        await news.end(await news.job(f"j-{n}"))
    await news.read()
    for _ in range(6):
        await news.deliver(START)
    for n in range(5):
        await news.end(await news.job(f"later-{n}"))
    await news.read()
    await news.deliver(START + ONE_EVERY / 2)
    assert len(news.receiver.received) == 10
    await news.deliver(START + ONE_EVERY + SECOND)
    assert len(news.receiver.received) == 11
    assert news.receiver.received[-1].document["count"] == 5


async def test_a_digest_that_fails_is_tried_again_as_the_same(news: News) -> None:
    await news.channel()
    await news.rule("failed")
    for n in range(15):
        await news.end(await news.job(f"j-{n}"))
    await news.read()
    news.receiver.answers = [Answer()] * 9 + [Answer(500, b"")]
    for _ in range(4):
        await news.deliver(START)
    await news.deliver(START + 10 * SECOND)
    first, second = news.receiver.received[-2:]
    assert (first.headers["idempotency-key"], first.document["lines"]) == (second.headers["idempotency-key"], second.document["lines"])
    assert {each["state"] for each in await news.deliveries()} == {"delivered"}


async def in_trouble_with_a_digest(news: News) -> None:
    """Thirteen failures with three tokens: two messages and a digest of eleven are claimed, and the server takes none for a minute."""
    await news.channel()
    await news.rule("failed")
    for n in range(13):
        await news.end(await news.job(f"j-{n:02}"))
    await news.read()
    async with news.services.write() as session:
        channel = await rows.channel(session, "hook")
        assert channel is not None
        channel.tokens, channel.tokens_at = 3.0, START
    news.receiver.answers = [Answer(429, b"", {"Retry-After": "60"})]
    await news.deliver(START)


async def test_a_digest_that_was_claimed_and_not_sent_is_sent_whole(news: News) -> None:
    await in_trouble_with_a_digest(news)
    for _ in range(3):
        await news.deliver(START + 61 * SECOND)
    digests = [each.document for each in news.receiver.received if each.document["event"] == "digest"]
    assert [(each["count"], each["lines"][0].split(" failed")[0]) for each in digests] == [(11, "Job j-02")]
    assert [title.split()[1] for title in news.receiver.titles] == ["j-00", "j-00", "notifications", "j-01"]
    assert {each["state"] for each in await news.deliveries()} == {"delivered"}


async def test_what_was_tried_before_does_not_wait_for_a_token(news: News) -> None:
    await in_trouble_with_a_digest(news)
    async with news.services.write() as session:
        channel = await rows.channel(session, "hook")
        assert channel is not None
        channel.tokens, channel.tokens_at, channel.quiet_until = 0.0, START + 30 * SECOND, None
    await news.deliver(START + 30 * SECOND)  # the digest goes; the second message is to wait for a token
    await news.deliver(START + 61 * SECOND)
    assert [title.split()[1] for title in news.receiver.titles] == ["j-00", "notifications", "j-00"]
    await news.deliver(START + 30 * SECOND + ONE_EVERY)
    assert news.receiver.titles[-1].startswith("Job j-01 ")


async def test_a_channel_that_is_away_does_not_hold_up_the_others(failing: News) -> None:
    await failing.channel("dead", url="http://127.0.0.1:9/")
    await failing.rule("failed", channel="dead")
    for n in range(5):
        await failing.end(await failing.job(f"j-{n}"))
    await failing.read()
    for _ in range(3):
        await failing.deliver(START)
    assert len(failing.receiver.received) == 6
    dead = await failing.deliveries(channel="dead")
    assert sorted(each["attempts"] for each in dead) == [0, 0, 0, 0, 1], "the others wait with the first"


async def test_after_a_clock_that_was_ahead_is_set_back_messages_go_at_once(failing: News) -> None:
    """The channel was silent until that time had come again, for new messages too."""
    failing.receiver.answers = [Answer(500, b"")]
    await failing.deliver(START + 720 * HOUR)
    assert (await only(failing))[:2] == ("pending", 1)
    await failing.end(await failing.job("second"))
    await failing.read(START)
    await failing.deliver(START)
    assert {each["state"] for each in await failing.deliveries()} == {"delivered"}
    assert len(failing.receiver.received) == 3


async def test_tokens_grow_after_a_clock_that_was_ahead_is_set_back(failing: News) -> None:
    async with failing.services.write() as session:
        channel = await rows.channel(session, "hook")
        assert channel is not None
        channel.tokens, channel.tokens_at = 0.0, START + 720 * HOUR
    await failing.deliver(START)
    assert failing.receiver.received == []
    await failing.deliver(START + ONE_EVERY + SECOND)
    assert (await only(failing))[0] == "delivered"


async def test_slack_gets_its_form_and_nothing_becomes_a_mention(news: News) -> None:
    await news.channel("slack", kind="slack")
    await news.rule("failed", channel="slack")
    await news.end(await news.job("gpt", created_by="<!channel> & co"))
    await news.read()
    await news.deliver()
    (got,) = news.receiver.received
    assert set(got.document) == {"text", "mrkdwn", "blocks"}
    assert "paceline-signature" not in got.headers
    assert "&lt;!channel&gt; &amp; co" in got.body.decode()
    assert "<!channel>" not in got.body.decode()


async def test_mail_goes_to_every_recipient(news: News, mail: MailServer) -> None:
    await news.channel("ops", kind="email", url=None, recipients=["a@example.org", "b@example.org"])
    await news.rule("failed", channel="ops")
    await news.end(await news.job())
    await news.read()
    await news.deliver()
    (got,) = mail.received
    assert got.recipients == ["a@example.org", "b@example.org"]
    assert got.message["Subject"].startswith("[Paceline] Job gpt failed")


async def test_a_channel_that_is_deleted_is_sent_nothing_more_and_keeps_its_history(failing: News) -> None:
    assert (await failing.client.delete(f"{NEWS}/channels/hook")).status_code == 204
    await failing.deliver()
    assert failing.receiver.received == []
    assert await only(failing) == ("failed", 0, "not sent: the channel was deleted")


async def test_a_claim_of_a_channel_that_vanished_ends_what_waits(failing: News) -> None:
    async with failing.services.write() as session:
        assert await deliveries.claim(session, "gone", "", START) == []
