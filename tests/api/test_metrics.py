"""Curves: few enough buckets for any range, every spike in them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.services.history import curves as history
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.monitoring.points import MetricRecord, RankBatch
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.loop_watchdog import watched


@dataclass(frozen=True)
class Curves:
    client: httpx.AsyncClient
    writer: MetricsWriter
    job_id: str

    async def store(self, records: list[MetricRecord], *, rank: int = 0, generation: int = 1) -> None:
        await self.writer.store([RankBatch(job_id=self.job_id, generation=generation, rank=rank, metrics=records)])

    async def get(self, **params: Any) -> dict[str, Any]:
        answer = await self.client.get(f"/api/v1/metrics/jobs/{self.job_id}", params=params)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document


@pytest.fixture
async def curves(app: Any, services: Services, client: httpx.AsyncClient) -> Curves:
    async with services.write() as session:
        job = await factories.create_job(session, world_size=6)
    return Curves(client, app.state.writer, job.id)


async def test_a_short_run_is_raw(curves: Curves) -> None:
    await curves.store(factories.records(1, 50, mine=7.0))
    document = await curves.get()
    assert (document["first_step"], document["last_step"], document["names"]) == (1, 50, ["loss", "mine"])
    (curve,) = document["curves"]
    assert (curve["name"], curve["unit"], curve["bucket_steps"], curve["steps"]) == ("loss", "nats", 1, list(range(1, 51)))
    assert curve["minimum"] == curve["maximum"] == curve["last"]
    assert document["as_of_seq"] > 0


@pytest.mark.parametrize(
    "part", [{"script": {"path": "train.py"}}, {"entrypoint": "mine:task", "training": {"steps": 5}}], ids=["a script", "an entrypoint"]
)
async def test_the_unit_of_a_users_own_loss_is_not_known(
    app: Any, services: Services, client: httpx.AsyncClient, part: dict[str, Any]
) -> None:
    async with services.write() as session:
        job = await factories.create_job(session, spec=JobSpec.model_validate({"name": "own"} | part))
    curves = Curves(client, app.state.writer, job.id)
    await curves.store(factories.records(1, 5))
    (curve,) = (await curves.get())["curves"]
    assert (curve["name"], curve["unit"]) == ("loss", "")


async def test_a_name_with_a_comma_is_asked_for_as_it_is_called(curves: Curves) -> None:
    """`names` takes it apart."""
    values: dict[str, Any] = {"loss": 1.0, "recall, macro": 0.5, "recall": 0.4, "own": 0.3}
    await curves.store(factories.records(1, 3, **values))

    async def names(**asked: Any) -> set[str]:
        return {curve["name"] for curve in (await curves.get(**asked))["curves"]}

    assert await names(name="recall, macro") == {"recall, macro"}
    assert await names(name=["recall, macro", "own"]) == {"recall, macro", "own"}
    assert await names(name="recall, macro", names="loss,own") == {"recall, macro", "loss", "own"}
    assert await names(names="recall, macro") == {"recall"}


async def test_any_range_fits_and_no_spike_hides(curves: Curves) -> None:
    records = factories.records(1, 12_345, loss=1.0)
    spike = MetricRecord(seq=7_000, step=7_000, time=0.0, values={"loss": 99.0})
    dip = MetricRecord(seq=7_001, step=7_001, time=0.0, values={"loss": -99.0})
    records[6_999:7_001] = [spike, dip]
    for start in range(0, len(records), 4_000):
        await curves.store(records[start : start + 4_000])
    for buckets in (2000, 200, 7, 1):
        (curve,) = (await curves.get(buckets=buckets))["curves"]
        assert len(curve["steps"]) <= buckets
        assert max(curve["maximum"]) == 99.0
        assert min(curve["minimum"]) == -99.0
        assert curve["steps"][-1] == 12_345
    (close,) = (await curves.get(first_step=6_990, last_step=7_010))["curves"]
    assert close["bucket_steps"] == 1
    assert close["last"][close["steps"].index(7_000)] == 99.0


async def test_a_bucket_tells_its_mean_and_how_many_points_it_has(curves: Curves) -> None:
    """A rate that jumps from step to step is its mean; the last step of a bucket would be noise."""
    values = [100.0 if step % 2 else 300.0 for step in range(1, 1_001)]
    await curves.store([MetricRecord(seq=step, step=step, time=0.0, values={"loss": value}) for step, value in enumerate(values, 1)])
    (raw,) = (await curves.get())["curves"]
    assert (raw["mean"], set(raw["count"])) == (values, {1})
    (rolled,) = (await curves.get(buckets=20))["curves"]
    assert rolled["bucket_steps"] == 100
    assert sum(rolled["count"]) == 1_000
    assert all(195 < mean < 205 for mean in rolled["mean"][:-1])


async def test_a_rare_metric_keeps_its_own_points_beside_a_dense_one(curves: Curves) -> None:
    rare: dict[int, dict[str, factories.Value]] = {step: {"eval_loss": float(step)} for step in range(100, 5_001, 100)}
    records = [MetricRecord(seq=step, step=step, time=float(step), values={"loss": 1.0, **rare.get(step, {})}) for step in range(1, 5_001)]
    await curves.store(records)
    found = {curve["name"]: curve for curve in (await curves.get(buckets=100))["curves"]}
    assert found["eval_loss"]["steps"] == list(range(100, 5_001, 100))
    assert len(found["loss"]["steps"]) <= 100


async def test_generations_share_the_limit_and_drop_nothing(curves: Curves) -> None:
    for generation in (1, 2, 3):
        await curves.store(factories.records(1, 3_000, loss=float(generation)), generation=generation)
    found = (await curves.get(buckets=300))["curves"]
    assert [curve["generation"] for curve in found] == [1, 2, 3]
    assert sum(len(curve["steps"]) for curve in found) <= 300
    assert [set(curve["maximum"]) for curve in found] == [{1.0}, {2.0}, {3.0}]


async def test_nan_is_marked_and_hides_no_extreme(curves: Curves) -> None:
    records = factories.records(1, 30, loss=1.0)
    records[14] = MetricRecord(seq=15, step=15, time=0.0, values={"loss": "NaN"})
    await curves.store(records)
    (curve,) = (await curves.get(buckets=4))["curves"]
    assert sum(curve["nan_count"]) == 1
    assert set(curve["maximum"]) == {1.0}
    await curves.store([MetricRecord(seq=31, step=50, time=0.0, values={"loss": "NaN"})])
    (curve,) = (await curves.get(buckets=8))["curves"]
    assert (curve["last"][-1], curve["minimum"][-1], curve["nan_count"][-1]) == ("NaN", "NaN", 1)


async def test_ranks_are_separate(curves: Curves) -> None:
    for rank in (0, 1):
        await curves.store(factories.records(1, 3, step_seconds=float(rank)), rank=rank)
    found = (await curves.get(ranks="0,1,5", names="step_seconds"))["curves"]
    assert [(curve["rank"], curve["last"]) for curve in found] == [(0, [0.0] * 3), (1, [1.0] * 3)]
    refused = await curves.client.get(f"/api/v1/metrics/jobs/{curves.job_id}", params={"ranks": "0,9,6"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "ranks=6,9: the job has ranks 0 to 5")


async def test_rollups_merge_over_uploads_of_any_size(curves: Curves) -> None:
    """Uploads cut the run at odd places; the buckets are those of one brute-force pass over the points."""
    values = [math.sin(step * 0.37) * (50 if step % 211 == 0 else 1) for step in range(1, 2_601)]
    start = 0
    for size in (1, 9, 90, 1_000, 1_500):
        await curves.store(
            [
                MetricRecord(seq=step, step=step, time=float(step), values={"loss": values[step - 1]})
                for step in range(start + 1, min(start + size, 2_600) + 1)
            ]
        )
        start += size
    (curve,) = (await curves.get(buckets=500))["curves"]
    expected: defaultdict[int, list[float]] = defaultdict(list)
    for step, value in enumerate(values, start=1):
        expected[step // 10].append(value)
    assert curve["bucket_steps"] == 10
    assert curve["minimum"] == pytest.approx([min(expected[number]) for number in sorted(expected)])
    assert curve["maximum"] == pytest.approx([max(expected[number]) for number in sorted(expected)])
    assert curve["last"] == pytest.approx([expected[number][-1] for number in sorted(expected)])


async def test_many_curves_of_one_answer_have_few_buckets_and_more_are_refused_in_words(
    curves: Curves, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {f"m{number}": 1.0 for number in range(20)}
    for rank in (0, 1):
        await curves.store(factories.records(1, 100, **names), rank=rank)
    monkeypatch.setattr(history, "MAX_POINTS", 1_000)
    found = (await curves.get(name=list(names), ranks="0,1"))["curves"]
    assert len(found) == 40
    assert 0 < sum(len(curve["steps"]) for curve in found) <= 1_000
    assert {curve["steps"][-1] for curve in found} == {100}
    monkeypatch.setattr(history, "MAX_CURVES", 30)
    refused = await curves.client.get(f"/api/v1/metrics/jobs/{curves.job_id}", params={"name": list(names), "ranks": "0,1"})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_parameter")
    assert refused.json()["detail"] == "20 names of 2 ranks are 40 curves; the limit is 30: ask for fewer in several requests"


async def test_ten_curves_of_all_their_points_do_not_keep_the_event_loop(curves: Curves) -> None:
    names: dict[str, Any] = {f"m{number}": 1.0 for number in range(20)}
    await curves.store(factories.records(1, 2_000, **names))
    await curves.get(name=list(names))
    with watched() as watch:
        found = (await curves.get(name=list(names)))["curves"]
    assert [len(curve["steps"]) for curve in found] == [2_000] * 20
    watch.assert_free()


async def test_an_empty_job_has_no_curves(curves: Curves) -> None:
    document = await curves.get()
    assert (document["curves"], document["first_step"], document["as_of_seq"]) == ([], None, 0)


@pytest.mark.parametrize(
    ("query", "code", "status"),
    [("ranks=x", "invalid_parameter", 400), ("buckets=2001", "invalid_parameter", 400), ("bucket=5", "unknown_parameter", 400)],
)
async def test_bad_parameters_are_problems(curves: Curves, query: str, code: str, status: int) -> None:
    answer = await curves.client.get(f"/api/v1/metrics/jobs/{curves.job_id}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_an_unknown_job_is_not_found(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/metrics/jobs/nothing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
