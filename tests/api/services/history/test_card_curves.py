"""What the card of a rank was doing at a step, from readings of its own node and no other."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.core.context import Services
from paceline.api.services.experiments import slot_use
from paceline.api.services.history.card_curves import within
from paceline.api.services.history.card_holdings import CardHolding
from paceline.api.services.history.card_usage import IDLE_SECONDS, use_of
from paceline.api.services.nodes.node_metrics import TimeSpan
from paceline.api.services.nodes.reading_totals import ReadingTotal
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.monitoring.packed import ReadingBucket
from paceline.monitoring.points import MetricRecord, RankBatch
from paceline.monitoring.readings import CARD_METRICS
from tests import factories
from tests.event_files import read_scalars
from tests.readings import store

SECONDS = 200
HELD_SECONDS = SECONDS + 101
GPUS = [{"index": index, "uuid": f"GPU-{index}", "name": "H200", "memory_bytes": 1} for index in (3, 5)]


def test_a_short_step_shows_the_reading_of_its_second_and_a_hole_stays_one() -> None:
    series = {10: ReadingBucket(1, 7, 7, 7), 11: ReadingBucket(1, 9, 9, 9), 15: ReadingBucket(1, 1, 1, 1)}
    assert within(series, 1, [10.2, 10.4, 11.9, 13.0, 14.5]) == [
        ReadingBucket(1, 7, 7, 7),
        ReadingBucket(2, 16, 7, 9),
        ReadingBucket(1, 9, 9, 9),
        None,
    ]


@pytest.mark.parametrize(
    ("held", "readings", "used", "idle"),
    [
        (IDLE_SECONDS, IDLE_SECONDS, 0.0, True),
        (IDLE_SECONDS, IDLE_SECONDS, 6.0, False),
        (IDLE_SECONDS, 10, 0.0, False),
        (90, 90, 0.0, False),  # it loads its model
    ],
)
def test_a_card_is_idle_after_five_minutes_of_rest_and_not_while_its_job_begins(held: int, readings: int, used: float, idle: bool) -> None:
    holding = CardHolding(0, 1, "n", "node-a", 0, 3, TimeSpan(1000.0, 1000.0 + held), now=True)
    units = round(used / CARD_METRICS["utilization_percent"].step)
    found = use_of(holding, None, ReadingTotal(readings, readings * units))
    assert (found.idle, found.utilization_percent) == (idle, used)


@pytest.fixture
async def job(app: FastAPI, services: Services) -> JobRow:
    """A job of two ranks on the cards 3 and 5 of one node, a step each two seconds. Card 3 draws 100 W and more each second, card 5 half."""
    began = services.now() - timedelta(seconds=HELD_SECONDS)
    async with services.write() as session:
        node, _ = await factories.create_node(session, device="cuda", inventory={"gpus": GPUS})
        job = await factories.create_running_job(session, node, world_size=2)
        generation = await session.get(GenerationRow, (job.id, 1))
        assert generation is not None
        generation.started_at = began
    power = [float(100 + second) for second in range(SECONDS)]
    columns = {
        "gpu:3": {"power_watts": power, "utilization_percent": [90.0] * SECONDS},
        "gpu:5": {"power_watts": [watts / 2 for watts in power], "utilization_percent": [0.0] * SECONDS},
    }
    await store(services, node.id, began.timestamp(), columns)
    for rank in (0, 1):
        records = [
            MetricRecord(seq=step, step=step, time=began.timestamp() + 2 * step, values={"step_seconds": 2.0})
            for step in range(1, SECONDS // 2 + 1)
        ]
        await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=rank, metrics=records)])
    return job


async def get(client: httpx.AsyncClient, job: JobRow, **parameters: Any) -> list[dict[str, Any]]:
    answer = await client.get(f"/api/v1/metrics/jobs/{job.id}", params={"names": "step_seconds"} | parameters)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["cards"])


async def test_each_step_has_the_readings_of_its_ranks_own_card(client: httpx.AsyncClient, job: JobRow) -> None:
    first, second = await get(client, job, cards="power_watts", ranks="0,1")
    assert (first["rank"], first["card"], second["rank"], second["card"]) == (0, 3, 1, 5)
    assert first["steps"] == second["steps"] == list(range(1, 101))
    assert (first["unit"], first["generation"]) == ("W", 1)
    for step in (2, 50, 99):
        assert first["mean"][step - 1] == pytest.approx(100 + 2 * step - 1, abs=1.1)
        assert second["mean"][step - 1] == pytest.approx(first["mean"][step - 1] / 2, abs=0.1)


async def test_fewer_buckets_of_steps_keep_the_extremes(client: httpx.AsyncClient, job: JobRow) -> None:
    (curve,) = await get(client, job, cards="power_watts", buckets=7)
    assert len(curve["steps"]) <= 10
    assert min(curve["minimum"]) <= 103
    assert max(curve["maximum"]) >= 298


async def test_on_the_time_axis_there_is_all_the_time_that_the_card_was_held(client: httpx.AsyncClient, job: JobRow) -> None:
    power, used = sorted(await get(client, job, cards="power_watts,utilization_percent", axis="time"), key=lambda curve: str(curve["name"]))
    assert power["steps"] == []
    assert max(power["maximum"]) == pytest.approx(299)
    assert set(used["mean"]) == {90.0}
    assert power["times"] == used["times"]


async def test_nothing_is_read_unless_asked_and_a_wrong_name_is_told(client: httpx.AsyncClient, job: JobRow) -> None:
    assert await get(client, job) == []
    answer = await client.get(f"/api/v1/metrics/jobs/{job.id}", params={"cards": "watts"})
    assert answer.status_code == 400
    assert "power_watts" in answer.json()["detail"]


async def test_an_agent_that_offers_other_cards_now_leaves_old_ranks_theirs(
    client: httpx.AsyncClient, services: Services, job: JobRow
) -> None:
    async with services.write() as session:
        (node,) = await node_rows.present(session)
        node.inventory = {"gpus": [GPUS[1], GPUS[0]]}  # --gpus 5,3
    assert [curve["card"] for curve in await get(client, job, cards="power_watts", ranks="0,1")] == [3, 5]
    usage = (await client.get(f"/api/v1/training/jobs/{job.id}/usage")).json()
    assert [card["card"] for card in usage["cards"]] == [3, 5]


async def test_usage_has_slot_hours_energy_and_names_the_idle_card(client: httpx.AsyncClient, job: JobRow) -> None:
    answer = await client.get(f"/api/v1/training/jobs/{job.id}/usage")
    assert answer.status_code == 200, answer.text
    usage = answer.json()
    assert usage["slot_hours"] == pytest.approx(2 * HELD_SECONDS / 3600, rel=0.1)
    first, second = usage["cards"]
    assert first["energy_joules"] == pytest.approx(199.5 * first["held_seconds"], rel=0.01)
    assert usage["energy_joules"] == pytest.approx(first["energy_joules"] + second["energy_joules"])
    assert first["measured_ratio"] == pytest.approx(SECONDS / HELD_SECONDS, rel=0.1)
    assert (first["idle"], second["idle"]) == (False, True)
    assert second["utilization_percent"] == 0


async def test_the_energy_of_a_job_that_has_just_been_restarted_is_still_told(
    client: httpx.AsyncClient, services: Services, job: JobRow
) -> None:
    """Its cards have no reading in the new generation yet."""
    path, now = f"/api/v1/training/jobs/{job.id}/usage", services.now()
    async with services.write() as session:
        before = await session.get_one(GenerationRow, (job.id, 1))
        before.ended_at = now - timedelta(seconds=50)
    energy = (await client.get(path)).json()["energy_joules"]
    assert energy > 0
    async with services.write() as session:
        started = now - timedelta(seconds=1)
        session.add(GenerationRow(job_id=job.id, generation=2, world_size=2, started_at=started, store_token="t"))
        await session.flush()
        for rank in (await job_rows.ranks(session, [(job.id, 1)]))[job.id, 1]:
            again = {column.key: getattr(rank, column.key) for column in RankRow.__mapper__.columns} | {"generation": 2}
            session.add(RankRow(**again))
        (await session.get_one(JobRow, job.id)).generation = 2
    usage = (await client.get(path)).json()
    assert [card["energy_joules"] is None for card in usage["cards"]] == [False, True, False, True]
    assert usage["energy_joules"] == pytest.approx(energy)
    async with services.write() as session:
        (await session.get_one(GenerationRow, (job.id, 2))).started_at = now - timedelta(seconds=40)
    assert (await client.get(path)).json()["energy_joules"] is None, "a reading should have come by now"


async def test_the_usage_of_a_job_makes_no_bucket_for_each_second(
    client: httpx.AsyncClient, job: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a job of 128 ranks took seconds."""

    def fail(*arguments: Any) -> None:
        raise AssertionError("a bucket was made")

    for name in ("add", "merge", "of"):
        monkeypatch.setattr(ReadingBucket, name, fail)
    cards = (await client.get(f"/api/v1/training/jobs/{job.id}/usage")).json()["cards"]
    assert [card["utilization_percent"] for card in cards] == [90.0, 0.0]


async def test_the_usage_of_an_ended_job_does_not_shrink_when_ranks_of_earlier_generations_go(
    client: httpx.AsyncClient, services: Services, job: JobRow
) -> None:
    """Slot-hours were of the last generation alone, and its energy was taken for that of all."""
    path, now = f"/api/v1/training/jobs/{job.id}/usage", services.now()
    async with services.write() as session:
        held = await session.get_one(GenerationRow, (job.id, 1))
        held.ended_at = now
        earlier = {"generation": 0, "world_size": 4, "started_at": now - timedelta(hours=10), "ended_at": now - timedelta(hours=1)}
        session.add(GenerationRow(job_id=job.id, store_token="t", **earlier))
    usage = (await client.get(path)).json()
    assert usage["slot_hours"] == pytest.approx(4 * 9 + 2 * HELD_SECONDS / 3600, rel=0.01)
    assert (usage["energy_joules"], len(usage["cards"])) == (None, 2)


async def test_the_energy_of_a_trial_is_unknown_once_ranks_of_its_earlier_generations_are_gone(services: Services, job: JobRow) -> None:
    now = services.now()

    async def energies() -> Collection[str]:
        async with services.control.read() as control, services.metrics.read() as points:
            use = await slot_use.read_slot_use(control, points, [job.id], now, services.settings.keep.readings)
        return use.energy_joules.keys()

    assert job.id in await energies()
    async with services.write() as session:
        earlier = {"generation": 0, "started_at": now - timedelta(hours=2), "ended_at": now - timedelta(hours=1)}
        session.add(GenerationRow(job_id=job.id, world_size=2, store_token="t", **earlier))
    assert job.id not in await energies()


async def test_where_no_power_is_read_the_energy_is_unknown_and_never_zero(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session, device="cuda", inventory={"gpus": GPUS})
        job = await factories.create_running_job(session, node)
    usage = (await client.get(f"/api/v1/training/jobs/{job.id}/usage")).json()
    assert usage["energy_joules"] is None
    assert usage["cards"][0]["energy_joules"] is None
    assert usage["cards"][0]["idle"] is False
    assert usage["slot_hours"] > 0


async def test_ranks_on_cpu_slots_have_no_card(client: httpx.AsyncClient, services: Services, node: tuple[NodeRow, str]) -> None:
    async with services.write() as session:
        job = await factories.create_running_job(session, node[0])
    assert await get(client, job, cards="power_watts", axis="time") == []
    assert (await client.get(f"/api/v1/training/jobs/{job.id}/usage")).json()["cards"][0]["card"] is None


async def test_tensorboard_shows_the_card_beside_the_rank_that_held_it(client: httpx.AsyncClient, job: JobRow, tmp_path: Path) -> None:
    answer = await client.get(f"/api/v1/training/jobs/{job.id}/tensorboard")
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path / "runs")
    (top,) = (tmp_path / "runs").iterdir()
    scalars = read_scalars(top / "rank1")
    assert {name for name in scalars if name.startswith("card/")} == {"card/power_watts", "card/utilization_percent"}
    assert len(scalars["card/power_watts"]) == SECONDS // 2
    assert scalars["card/power_watts"][49].value == pytest.approx((100 + 99) / 2, abs=1)
    assert "card/power_watts" not in read_scalars(top / "job")


async def test_an_idle_card_that_a_job_holds_is_named_for_the_whole_cluster(
    client: httpx.AsyncClient, services: Services, job: JobRow
) -> None:
    async def idle() -> list[dict[str, Any]]:
        answer = await client.get("/api/v1/cluster/idle-cards")
        assert answer.status_code == 200, answer.text
        return list(answer.json()["cards"])

    async def last_used(*percents: float) -> None:
        async with services.write() as session:
            (node,) = await node_rows.present(session)
            node.last_sample = {
                "gpus": [{"index": index, "utilization_percent": used} for index, used in zip((3, 5), percents, strict=True)]
            }

    await last_used(90.0, 0.0)
    (card,) = await idle()
    assert (card["job_id"], card["rank"], card["node_name"], card["card"], card["utilization_percent"]) == (job.id, 1, "node-a", 5, 0.0)
    await last_used(0.0, 0.0)  # the other one rests for a moment only
    assert [card["card"] for card in await idle()] == [5]
    await last_used(90.0, 40.0)
    assert await idle() == []
