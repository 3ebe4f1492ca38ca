"""A job's event files: TensorBoard reads every scalar, and each step once, whatever crashed or was done again."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.core.context import Services
from paceline.api.services.history import event_files
from paceline.api.services.history.event_files import CardHistory
from paceline.cluster.states import JobState
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.monitoring.points import MetricRecord, RankBatch
from tests import factories
from tests.event_files import Point, read_scalars
from tests.factories import START

T0 = START.timestamp()


def records(first: int, last: int, loss: float, *, own: bool = True, **more: float) -> list[MetricRecord]:
    seconds = {"step_seconds": 0.5, "communication_seconds": 0.1} if own else {}
    values = {"loss": loss, "first_sample": 0.0} | seconds | more
    return [MetricRecord(seq=seq, step=step, time=T0 + step, values={**values}) for seq, step in enumerate(range(first, last + 1), 1)]


@dataclass
class Exporter:
    app: FastAPI
    services: Services
    client: httpx.AsyncClient
    folder: Path

    async def job(self, *starts: int) -> JobRow:
        """`starts`: the step from which each generation went on."""
        async with self.services.write() as session:
            job = await factories.create_job(session, state=JobState.RUNNING, generation=len(starts))
            for number, start in enumerate(starts, 1):
                session.add(
                    GenerationRow(job_id=job.id, generation=number, world_size=2, started_at=START, start_step=start, store_token="t")
                )
        return job

    async def tell(self, job: JobRow, generation: int, rank: int, told: list[MetricRecord]) -> None:
        await self.app.state.writer.store([RankBatch(job_id=job.id, generation=generation, rank=rank, metrics=told)])

    async def download(self, job: JobRow, **params: int) -> dict[str, dict[str, list[Point]]]:
        """Scalars by run, as TensorBoard shows them."""
        answer = await self.client.get(f"/api/v1/training/jobs/{job.id}/tensorboard", params=params)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-disposition"] == f'attachment; filename="{job.name}-tensorboard.zip"'
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.testzip() is None
            archive.extractall(self.folder)
        top = self.folder / event_files.folder_of(job)
        return {run.name: read_scalars(run) for run in top.iterdir()}


@pytest.fixture
def exporter(app: FastAPI, services: Services, client: httpx.AsyncClient, tmp_path: Path) -> Exporter:
    return Exporter(app, services, client, tmp_path / "runs")


async def test_the_job_and_each_rank_are_runs_of_their_own(exporter: Exporter) -> None:
    job = await exporter.job(0)
    await exporter.tell(job, 1, 0, records(1, 3, 2.0, eval_loss=1.5))
    await exporter.tell(job, 1, 1, [MetricRecord(seq=1, step=1, time=T0, values={"step_seconds": 0.7, "mine": 4.0})])
    found = await exporter.download(job)
    assert {run: sorted(tags) for run, tags in found.items()} == {
        "job": ["eval_loss", "loss"],
        "rank0": ["communication_seconds", "step_seconds"],
        "rank1": ["mine", "step_seconds"],
    }
    assert found["job"]["loss"] == [Point(T0 + step, step, 2.0) for step in (1, 2, 3)]
    assert [point.value for point in found["rank1"]["step_seconds"]] == pytest.approx([0.7])


async def test_steps_that_were_done_again_are_told_once(exporter: Exporter) -> None:
    """Generation 2 went on from step 3: what generation 1 did beyond it does not count, on any rank."""
    job = await exporter.job(0, 3)
    for rank in (0, 1):
        await exporter.tell(job, 1, rank, records(1, 5, 1.0))
        await exporter.tell(job, 2, rank, records(4, 6, 2.0))
    found = await exporter.download(job)
    assert [(point.step, point.value) for point in found["job"]["loss"]] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0), (6, 2.0)]
    for rank in ("rank0", "rank1"):  # type: ignore[assignment]
        assert [point.step for point in found[rank]["step_seconds"]] == [1, 2, 3, 4, 5, 6]  # type: ignore[index]


async def test_what_a_successor_of_rank_0_tells_again_is_told_once(exporter: Exporter) -> None:
    job = await exporter.job(0, 4)
    await exporter.tell(job, 1, 0, records(1, 4, 1.0))
    await exporter.tell(job, 2, 0, records(3, 4, 1.0, own=False))
    await exporter.tell(job, 2, 0, [MetricRecord(seq=3, step=5, time=T0 + 5, values={"loss": 1.0, "step_seconds": 0.5})])
    assert [point.step for point in (await exporter.download(job))["job"]["loss"]] == [1, 2, 3, 4, 5]


async def test_a_second_download_takes_the_place_of_the_first(exporter: Exporter) -> None:
    job = await exporter.job(0)
    await exporter.tell(job, 1, 0, records(1, 2, 1.0))
    await exporter.download(job)
    await exporter.tell(job, 1, 0, [MetricRecord(seq=3, step=3, time=T0, values={"loss": 0.5, "step_seconds": 0.5})])
    assert [point.step for point in (await exporter.download(job))["job"]["loss"]] == [1, 2, 3]


async def test_a_download_from_a_step_on_leaves_out_those_before_it(exporter: Exporter) -> None:
    """Also where the step lies before the one from which a later generation went on."""
    job = await exporter.job(0, 3)
    for rank in (0, 1):
        await exporter.tell(job, 1, rank, records(1, 5, 1.0))
        await exporter.tell(job, 2, rank, records(4, 6, 2.0))
    found = await exporter.download(job, first_step=3)
    assert [(point.step, point.value) for point in found["job"]["loss"]] == [(3, 1.0), (4, 2.0), (5, 2.0), (6, 2.0)]
    assert [point.step for point in found["rank1"]["step_seconds"]] == [3, 4, 5, 6]


async def test_a_download_from_a_step_that_was_not_reached_has_every_run_without_points(exporter: Exporter) -> None:
    job = await exporter.job(0)
    await exporter.tell(job, 1, 0, records(1, 2, 1.0))
    assert await exporter.download(job, first_step=3) == {"job": {}, "rank0": {}}


@pytest.mark.parametrize("first_step", [-1, 1 << 53])
async def test_a_download_from_what_is_no_step_is_refused(exporter: Exporter, first_step: int) -> None:
    path = f"/api/v1/training/jobs/{(await exporter.job(0)).id}/tensorboard"
    answer = await exporter.client.get(path, params={"first_step": first_step})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert "first_step" in answer.text


async def test_a_long_run_comes_in_pieces(exporter: Exporter, services: Services) -> None:
    job = await exporter.job(0)
    steps = 2 * event_files.BATCH_STEPS + 1
    told = records(1, steps, 1.0)
    for start in range(0, steps, 4_000):
        await exporter.tell(job, 1, 0, told[start : start + 4_000])
    async with services.metrics.read() as points:
        pieces = [piece async for piece in event_files.stream(points, job, [], CardHistory((), T0, services.settings.keep.readings))]
    assert len(pieces) > 3
    assert len((await exporter.download(job))["job"]["loss"]) == steps


async def test_before_the_first_step_there_is_nothing_to_download(exporter: Exporter) -> None:
    job = await exporter.job()
    answer = await exporter.client.get(f"/api/v1/training/jobs/{job.id}/tensorboard")
    assert (answer.status_code, answer.json()["code"]) == (409, "nothing_recorded")
    assert (await exporter.client.get("/api/v1/training/jobs/nothing/tensorboard")).status_code == 404
