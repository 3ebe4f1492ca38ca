"""Heat maps: the slow rank and the one slow step are where they were, whatever is folded together, and large maps stay small enough."""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.api.core.context import Services
from paceline.api.services.history import heatmap
from paceline.api.services.history.heatmap import GridValues, grid_of
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.services.storage import rollups
from paceline.api.services.storage.keeping import DeletionPace
from paceline.db.models.jobs import GenerationRow
from paceline.db.repositories.metrics import StepRange
from paceline.db.repositories.rank_series import RankSeries, Statistic
from paceline.monitoring.points import MetricRecord, RankBatch
from tests import factories

SLOW, STALL = 2, 37


@dataclass(frozen=True)
class Maps:
    client: httpx.AsyncClient
    writer: MetricsWriter
    services: Services
    job_id: str

    async def store(self, rank: int, records: Iterable[MetricRecord], generation: int = 1) -> None:
        await self.writer.store([RankBatch(job_id=self.job_id, generation=generation, rank=rank, metrics=list(records))])

    async def roll_up(self) -> None:
        now = self.services.now()
        assert await rollups.refresh(self.services, DeletionPace.of(60.0), now)

    async def ask(self, **params: Any) -> httpx.Response:
        return await self.client.get(f"/api/v1/metrics/jobs/{self.job_id}/heatmap", params=params)

    async def get(self, **params: Any) -> tuple[dict[str, Any], list[list[float]]]:
        """The answer, and its cells row by row."""
        answer = await self.ask(**params)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        cells = array("f", base64.b64decode(found["cells"]))
        columns = found["columns"]
        assert len(cells) == found["rows"] * columns
        return found, [cells[row * columns : (row + 1) * columns].tolist() for row in range(found["rows"])]


@pytest.fixture
async def maps(app: Any, services: Services, client: httpx.AsyncClient) -> Maps:
    async with services.write() as session:
        job = await factories.create_job(session)
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=4, started_at=services.now(), store_token=""))
    return Maps(client, app.state.writer, services, job.id)


def timed(first: int, last: int, *, slow: bool = False) -> list[MetricRecord]:
    """Steps of one rank of a gang that waits for its slow rank: all steps take as long, only the slow one computes for most of it."""
    waited = 0.01 if slow else 0.06
    return [
        MetricRecord(
            seq=step - first + 1,
            step=step,
            time=float(step),
            values={"step_seconds": 5.0 if slow and step == STALL else 0.1, "communication_seconds": waited},
        )
        for step in range(first, last + 1)
    ]


async def test_the_slow_rank_stands_out_though_all_steps_take_as_long(maps: Maps) -> None:
    for rank in range(4):
        await maps.store(rank, timed(1, 20, slow=rank == SLOW))
    found, cells = await maps.get()
    assert (found["name"], found["unit"], found["rows"], found["columns"], found["bucket_steps"]) == ("busy_seconds", "s", 4, 20, 1)
    assert (found["first_step"], found["last_step"]) == (1, 20)
    for rank, row in enumerate(cells):
        assert row == pytest.approx([0.09 if rank == SLOW else 0.04] * 20)


@pytest.mark.parametrize("rolled", [False, True], ids=["before its roll-ups are made", "from roll-ups"])
async def test_one_slow_step_of_hundreds_is_where_it_was(maps: Maps, monkeypatch: pytest.MonkeyPatch, rolled: bool) -> None:
    monkeypatch.setattr(heatmap, "MAX_RAW", 0)
    for rank in range(4):
        await maps.store(rank, timed(1, 239, slow=rank == SLOW))
    if rolled:
        await maps.roll_up()
    found, cells = await maps.get(name="step_seconds", statistic="maximum", columns=8)
    assert found["bucket_steps"] == 30  # three buckets of ten steps
    hit = [(row, column) for row, values in enumerate(cells) for column, value in enumerate(values) if value > 1]
    assert hit == [(SLOW, (STALL - found["first_step"]) // 30)]
    _, means = await maps.get(name="step_seconds", columns=8)
    assert means[SLOW][1] == pytest.approx((29 * 0.1 + 5.0) / 30)
    _, busy = await maps.get(columns=8)
    assert busy[0][3] == pytest.approx(0.04)


async def test_steps_that_two_generations_did_share_a_cell(maps: Maps) -> None:
    await maps.store(0, timed(1, 10))
    again = [MetricRecord(seq=1, step=10, time=11.0, values={"step_seconds": 0.3, "communication_seconds": 0.0})]
    await maps.store(0, again, generation=2)
    _, cells = await maps.get(name="step_seconds")
    assert cells[0][-1] == pytest.approx(0.2)
    assert all(math.isnan(value) for value in cells[3]), "a rank that told nothing has no values"


async def test_what_is_not_a_number_is_no_value(maps: Maps) -> None:
    values = ["NaN", "Infinity", 2.0]
    await maps.store(0, [MetricRecord(seq=n, step=n, time=1.0, values={"mine": value}) for n, value in enumerate(values, 1)])  # type: ignore[dict-item]
    _, cells = await maps.get(name="mine", statistic="maximum")
    assert [math.isnan(value) for value in cells[0]] == [True, True, False]


@pytest.mark.parametrize("rolled", [False, True])
async def test_what_rank_0_does_not_report_is_drawn_for_those_that_do(maps: Maps, rolled: bool) -> None:
    """As of a script of which one rank logs alone. The map said that nobody had reported the metric."""
    await maps.store(2, [MetricRecord(seq=n, step=n, time=1.0, values={"mine": float(n)}) for n in range(1, 4)])
    if rolled:
        await maps.roll_up()
    found, cells = await maps.get(name="mine")
    assert (found["first_step"], found["last_step"]) == (1, 3)
    assert cells[2] == [1.0, 2.0, 3.0]
    assert all(math.isnan(value) for rank in (0, 1, 3) for value in cells[rank])


async def test_a_job_without_steps_has_an_empty_map(maps: Maps) -> None:
    found, cells = await maps.get()
    assert (found["rows"], found["columns"], found["first_step"], cells) == (0, 0, None, [])


async def test_what_cannot_be_drawn_is_refused_with_what_can(maps: Maps) -> None:
    await maps.store(0, timed(1, 3))
    answer = await maps.ask(name="los")
    assert answer.status_code == 400
    assert answer.json()["detail"] == "name=los: the job has not reported los; it has communication_seconds, step_seconds"
    answer = await maps.ask(statistic="maximum")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert (await maps.client.get("/api/v1/metrics/jobs/nothing/heatmap")).status_code == 404
    found, _ = await maps.get(first_step=500, last_step=600)
    assert found["rows"] == 0


@given(
    st.integers(0, 10**9),
    st.integers(1, 10**7),
    st.integers(1, 5_000),
    st.integers(1, 1_000),
    st.sampled_from([1, 10, 1_000]),
    st.sampled_from([1, 2]),
)
def test_every_grid_holds_its_steps_and_is_small(first: int, span: int, ranks: int, columns: int, finest: int, metrics: int) -> None:
    steps = StepRange(first, first + span - 1)
    grid = grid_of(steps, ranks, columns, finest=finest, metrics=metrics)
    assert grid.rows * grid.columns <= heatmap.MAX_READ[metrics] + 2 * grid.rows
    assert grid.rows <= heatmap.MAX_ROWS
    assert grid.columns <= columns + 1
    assert grid.level >= finest
    assert grid.first_step <= steps.first
    assert steps.last < grid.first_step + grid.columns * grid.bucket_steps


def test_one_metric_of_a_thousand_ranks_has_more_columns_than_a_difference_of_two() -> None:
    steps = StepRange(0, 12_799)
    assert (grid_of(steps, 1_024, 400, finest=1).columns, grid_of(steps, 1_024, 400, finest=1, metrics=2).columns) == (128, 13)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(20, 59), st.floats(-10, 10)), max_size=60), st.integers(1, 40))
def test_cells_are_the_means_of_their_points(points: list[tuple[int, int, float]], columns: int) -> None:
    grid = grid_of(StepRange(20, 59), 8, columns, finest=1)
    cells = GridValues(grid, Statistic.MEAN)
    for rank in range(8):
        mine = sorted(((step, value) for who, step, value in points if who == rank))
        cells.add(RankSeries(rank, [step for step, _ in mine], [value for _, value in mine], [1] * len(mine)))
    found = cells.finished()
    for rank in range(8):
        for column in range(grid.columns):
            first = grid.first_step + column * grid.bucket_steps
            values = [value for who, step, value in points if who == rank and first <= step < first + grid.bucket_steps]
            cell = found[rank * grid.columns + column]
            assert cell == pytest.approx(sum(values) / len(values), abs=1e-5) if values else math.isnan(cell)
