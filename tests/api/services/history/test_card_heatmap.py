"""Heat maps of the cards' readings: each row is its rank's own card, each column the time of its steps."""

from __future__ import annotations

import base64
from array import array
from datetime import timedelta
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.schemas.metrics import Curve
from paceline.api.services.history.card_heatmap import TimedColumns, reading_of, timed_columns
from paceline.api.services.nodes.node_metrics import TimeSpan
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from tests import factories
from tests.api.services.history.test_card_curves import job

__all__ = ["job"]


async def ask(client: httpx.AsyncClient, job: JobRow, **params: Any) -> httpx.Response:
    return await client.get(f"/api/v1/metrics/jobs/{job.id}/heatmap", params={"name": "card/power_watts"} | params)


async def rows(client: httpx.AsyncClient, job: JobRow, **params: Any) -> tuple[dict[str, Any], list[list[float]]]:
    answer = await ask(client, job, **params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    cells, columns = array("f", base64.b64decode(found["cells"])), found["columns"]
    return found, [cells[row * columns : (row + 1) * columns].tolist() for row in range(found["rows"])]


def test_a_reading_of_the_cards_is_asked_for_by_a_name_that_no_metric_has() -> None:
    assert (reading_of("card/sm_clock_mhz"), reading_of("sm_clock_mhz"), reading_of("card/mine")) == ("sm_clock_mhz", None, None)


def test_a_column_ends_with_the_last_of_its_steps() -> None:
    none: dict[str, Any] = {name: [] for name in ("minimum", "maximum", "mean", "last", "count", "nan_count")}
    steps, times = [1, 2, 3, 4, 5], [12.0, 14.0, 16.0, 18.0, 20.0]
    curve = Curve(name="loss", unit="", rank=0, generation=1, bucket_steps=1, steps=steps, times=times, **none)
    columns = timed_columns(curve, 2)
    assert columns == TimedColumns([0, 1, 2], [10.0, 12.0, 16.0, 20.0])
    assert columns.within(TimeSpan(13.0, 17.0)) == TimedColumns([1], [13.0, 16.0])
    assert columns.within(TimeSpan(30.0, 40.0)) is None


async def test_each_row_has_the_readings_of_its_ranks_own_card(client: httpx.AsyncClient, job: JobRow) -> None:
    found, (first, second) = await rows(client, job)
    assert (found["name"], found["unit"], found["ranks"], found["columns"], found["first_step"]) == ("card/power_watts", "W", 2, 100, 1)
    for step in (2, 50, 99):
        assert first[step - 1] == pytest.approx(100 + 2 * step - 1, abs=1.1)
        assert second[step - 1] == pytest.approx(first[step - 1] / 2, abs=0.1)


async def test_fewer_columns_show_means_or_the_highest_reading(client: httpx.AsyncClient, job: JobRow) -> None:
    found, (first, _) = await rows(client, job, columns=10, first_step=20, last_step=79)
    assert (found["first_step"], found["bucket_steps"], found["last_step"]) == (18, 6, 79)
    assert first[1] == pytest.approx(152, abs=3)  # steps 24 to 29, seconds 46 to 58
    _, (highest, _) = await rows(client, job, columns=10, first_step=20, last_step=79, statistic="maximum")
    assert highest[1] == pytest.approx(158, abs=3)


async def test_a_card_that_goes_on_under_another_rank_while_a_generation_ends_keeps_its_row(
    client: httpx.AsyncClient, services: Services, job: JobRow
) -> None:
    """The second generation begins when it is decided on; the first one's ranks go on until the end of a step that they agree on."""
    async with services.write() as session:
        first = await session.get(GenerationRow, (job.id, 1))
        (_, second) = await job_rows.all_ranks(session, job.id)
        assert first is not None
        first.ended_at = first.started_at + timedelta(seconds=190)
        times = {"started_at": first.ended_at, "start_step": 100}
        session.add(GenerationRow(job_id=job.id, generation=2, world_size=1, store_token="t", **times))
        place = {"node_id": second[0].node_id, "slot": second[0].slot, "card": second[0].card}
        session.add(RankRow(job_id=job.id, generation=2, rank=0, local_rank=0, node_rank=0, updated_at=first.ended_at, **place))
    _, (of_first, of_second) = await rows(client, job)
    for step in (2, 50, 90):
        assert of_second[step - 1] == pytest.approx(of_first[step - 1] / 2, abs=0.1)
    assert of_first[97] == pytest.approx((100 + 195) / 2, abs=1.1), "the card that was another rank's goes on in the row of its new one"


async def test_a_job_without_cards_has_no_such_map(client: httpx.AsyncClient, services: Services, node: tuple[NodeRow, str]) -> None:
    async with services.write() as session:
        job = await factories.create_running_job(session, node[0])
    answer = await ask(client, job)
    assert (answer.status_code, "no rank of this job held a card" in answer.json()["detail"]) == (400, True)
