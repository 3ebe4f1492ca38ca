"""The records of simulated ranks: numbered, kept until they are acknowledged, and sent again."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import msgspec

from paceline.cluster.protocol import RankKey
from paceline.cluster.simulation.outbox import MOST_RECORDS, OutboxUploader, RankOutbox
from paceline.monitoring.points import HighWater, Upload, UploadReply
from tests.waiting import until

KEY = RankKey("job", 1, 0)


def test_each_stream_has_its_numbers_and_forgets_what_is_held() -> None:
    outbox = RankOutbox(KEY)
    for step in (1, 2, 3):
        outbox.record(step, {"loss": 1.0})
    outbox.event("evaluated", step=3, metrics={})
    outbox.line("hello")
    assert [record.seq for record in outbox.batch(2).metrics] == [1, 2]
    outbox.acknowledge(HighWater(job_id="job", generation=1, rank=0, metrics=2, logs=1))
    left = outbox.batch(10)
    assert ([record.step for record in left.metrics], left.logs, len(left.events)) == ([3], [], 1)
    assert len(outbox) == 2


async def test_a_coordinator_that_is_away_gets_all_of_it_afterwards() -> None:
    stored: dict[int, float] = {}
    answers = iter([503, 503])

    def answer(request: httpx.Request) -> httpx.Response:
        if (refused := next(answers, None)) is not None:
            return httpx.Response(refused)
        (batch,) = msgspec.json.decode(request.content, type=Upload).batches
        assert len(batch.metrics) <= MOST_RECORDS
        stored.update({record.seq: record.step for record in batch.metrics})
        mark = HighWater(job_id="job", generation=1, rank=0, metrics=batch.metrics[-1].seq)
        return httpx.Response(200, content=msgspec.json.encode(UploadReply(acknowledged=[mark])))

    emptied: list[RankKey] = []
    async with httpx.AsyncClient(base_url="http://coordinator", transport=httpx.MockTransport(answer)) as http:
        uploader = OutboxUploader(http, emptied.append)
        outbox = uploader.follow(KEY)
        for step in range(1, 2 * MOST_RECORDS + 10):
            outbox.record(step, {"loss": 1.0})
        running = asyncio.create_task(uploader.run())
        await until(lambda: emptied == [KEY], "everything is acknowledged")
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert stored == {number: number for number in range(1, 2 * MOST_RECORDS + 10)}
    assert uploader.backlog() == 0
