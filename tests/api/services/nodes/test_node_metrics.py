"""`GET /cluster/nodes/{id}/metrics`: every reading counts in every range and resolution, rolled up or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from paceline.api.core.context import Services
from paceline.api.services.nodes import node_metrics
from paceline.api.services.storage import readings
from paceline.api.services.storage.keeping import DeletionPace
from paceline.db.models.nodes import NodeRow
from paceline.db.models.readings import NodeReadingRollupRow, NodeReadingRow
from paceline.monitoring.readings import metrics_of
from tests.readings import store

POWER = [float(100 + second % 50) for second in range(600)]
URL = "/api/v1/cluster/nodes/{}/metrics"


@pytest.fixture
def start(services: Services) -> float:
    """When the busy node was read first: within the hour before this test, however long the tests before it took."""
    return services.now().timestamp() // 600 * 600 - 1_800


@pytest.fixture
async def busy_node(services: Services, node: tuple[NodeRow, str], start: float) -> NodeRow:
    """A node that was read for ten minutes, until half an hour ago."""
    columns = {"gpu:1": {"power_watts": POWER}, "host": {"cpu_percent": POWER}, "net:eth0": {"sent_bytes_per_second": [2048.0] * 600}}
    await store(services, node[0].id, start, columns)
    return node[0]


async def get(client: httpx.AsyncClient, node: NodeRow, **parameters: Any) -> dict[str, Any]:
    answer = await client.get(URL.format(node.id), params=parameters)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def totals(curve: dict[str, Any]) -> tuple[float, float]:
    return min(curve["minimum"]), max(curve["maximum"])


async def test_the_last_hour_of_everything_that_was_read(client: httpx.AsyncClient, busy_node: NodeRow, start: float) -> None:
    found = await get(client, busy_node)
    curves = [(curve["card"], curve["interface"], curve["name"], curve["unit"]) for curve in found["curves"]]
    assert curves == [
        (None, None, "cpu_percent", "%"),
        (1, None, "power_watts", "W"),
        (None, "eth0", "sent_bytes_per_second", "B/s"),
    ]
    assert found["bucket_seconds"] == 10  # the finest roll-up, which has 360 buckets in an hour
    assert found["first_time"] == pytest.approx(start)
    assert found["last_time"] == pytest.approx(start + 599)
    assert found["curves"][2]["mean"] == [2048.0] * len(found["curves"][2]["times"])


@pytest.mark.parametrize("rolled_up", [False, True])
@pytest.mark.parametrize("buckets", [2, 17, 400, 2_000])
async def test_extremes_survive_every_resolution(
    client: httpx.AsyncClient, services: Services, busy_node: NodeRow, start: float, buckets: int, rolled_up: bool
) -> None:
    if rolled_up:
        await readings.roll_up_all(services, DeletionPace.of(30.0), services.now())
    since = datetime.fromtimestamp(start, UTC).isoformat()
    until = datetime.fromtimestamp(start + 599, UTC).isoformat()
    found = await get(client, busy_node, names="power_watts", cards="1", buckets=buckets, since=since, until=until)
    (curve,) = found["curves"]
    assert len(curve["times"]) <= buckets
    assert totals(curve) == (100.0, 149.0)
    assert curve["times"] == sorted(curve["times"])


@pytest.mark.parametrize("rolled_up", [False, True])
async def test_rows_that_cannot_be_read_are_a_gap_in_the_curves(
    client: httpx.AsyncClient, services: Services, busy_node: NodeRow, start: float, rolled_up: bool
) -> None:
    if rolled_up:
        await readings.roll_up_all(services, DeletionPace.of(30.0), services.now())
    whole = (await get(client, busy_node, names="power_watts", buckets=2_000))["curves"][0]
    async with services.metrics.write() as session:
        await session.execute(update(NodeReadingRow).where(NodeReadingRow.first_time < start + 300).values(data=b"damaged"))
        await session.execute(update(NodeReadingRollupRow).where(NodeReadingRollupRow.seconds == 10).values(data=b"damaged"))
    found = (await get(client, busy_node, names="power_watts", buckets=2_000))["curves"]
    assert [len(curve["times"]) / len(whole["times"]) for curve in found] == ([] if rolled_up else [pytest.approx(0.5, abs=0.05)])


async def test_a_stored_metric_of_a_later_version_is_left_out(
    client: httpx.AsyncClient, busy_node: NodeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_metrics, "metrics_of", lambda subject: {} if subject == "host" else metrics_of(subject))
    found = await get(client, busy_node)
    assert [curve["name"] for curve in found["curves"]] == ["power_watts", "sent_bytes_per_second"]


async def test_old_ranges_come_from_roll_ups_and_new_readings_beside_them_are_added(
    client: httpx.AsyncClient, services: Services, busy_node: NodeRow, start: float
) -> None:
    await readings.roll_up_all(services, DeletionPace.of(30.0), services.now())
    await store(services, busy_node.id, start + 600, {"gpu:1": {"power_watts": [900.0] * 5}})
    since = (services.now() - timedelta(days=2)).isoformat()
    found = await get(client, busy_node, names="power_watts", since=since, buckets=2_000)
    assert found["bucket_seconds"] == 600
    assert totals(found["curves"][0]) == (100.0, 900.0)
    assert found["first_time"] == pytest.approx(start), "the first reading, not the start of its roll-up"


async def test_a_range_without_readings_has_no_curves_and_says_what_is_kept(
    client: httpx.AsyncClient, services: Services, busy_node: NodeRow
) -> None:
    found = await get(client, busy_node, until=(services.now() - timedelta(days=3)).isoformat())
    assert found["curves"] == []
    assert found["first_time"] is not None


async def test_a_node_that_was_never_read_says_so(client: httpx.AsyncClient, node: tuple[NodeRow, str]) -> None:
    found = await get(client, node[0])
    assert (found["first_time"], found["last_time"], found["curves"]) == (None, None, [])


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"names": "watts"}, "watts"),
        ({"cards": "a"}, "whole number"),
        ({"since": "2026-11-20T12:00:00"}, "time zone"),
        ({"since": "2026-11-20T12:00:00Z", "until": "2026-11-20T11:00:00Z"}, "not before"),
        ({"bucket": "5"}, "bucket"),
    ],
)
async def test_a_wrong_parameter_is_named(client: httpx.AsyncClient, busy_node: NodeRow, parameters: dict[str, str], word: str) -> None:
    answer = await client.get(URL.format(busy_node.id), params=parameters)
    assert answer.status_code == 400, answer.text
    assert word in answer.json()["detail"]


async def test_an_unknown_node_is_a_404(client: httpx.AsyncClient) -> None:
    assert (await client.get(URL.format("nobody"))).status_code == 404
