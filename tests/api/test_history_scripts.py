"""What the incident log says of a script that was started again: what its steps tell, and never more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.core.context import Services
from paceline.api.services.ingest.progress import ProgressKeeper
from paceline.cluster.states import EndReason, JobState
from paceline.db.models.incidents import IncidentRow
from paceline.db.models.jobs import GenerationRow
from paceline.monitoring.points import MetricRecord, RankBatch
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.factories import START, MetricValues

SCRIPT = JobSpec.model_validate({"name": "own", "script": {"path": "/srv/train.py"}})
UNKNOWN = "; the number of repeated steps is unknown: the script does not report each step"


class Scripts:
    def __init__(self, app: FastAPI, services: Services, client: httpx.AsyncClient) -> None:
        self.app, self.services, self.client = app, services, client

    async def restarted(self, before: list[int], after: list[int], *, runs_again: bool = True, loaded: int = 0) -> dict[str, Any]:
        """The incident of a job whose first generation told of the steps `before`, and whose second of `after`, and of a checkpoint of step `loaded`."""
        async with self.services.write() as session:
            job = await factories.create_job(session, spec=SCRIPT, state=JobState.RUNNING, generation=2, started_at=START)
            for number, start in ((1, 0), (2, loaded)):
                begun = START + timedelta(seconds=10 * number)
                row = GenerationRow(job_id=job.id, generation=number, world_size=1, started_at=begun, start_step=start, store_token="t")
                session.add(row)
            session.add(
                IncidentRow(
                    job_id=job.id,
                    generation=1,
                    next_generation=2,
                    action="restarted",
                    cause=EndReason.RANK_CRASHED,
                    why="boom; restart 1 of at most 3",
                    culprit=None,
                    step=max(before, default=0),
                    resumed_step=0,
                    agreed_at=START + timedelta(seconds=21) if runs_again else None,
                    **{name: START + timedelta(seconds=15) for name in ("fault_at", "detected_at", "decided_at")},
                )
            )
        for number, steps in ((1, before), (2, after)):
            records = [
                MetricRecord(seq=seq, step=step, time=START.timestamp() + seq, values={"loss": 1.0}) for seq, step in enumerate(steps, 1)
            ]
            batch = RankBatch(job_id=job.id, generation=number, rank=0, metrics=records)
            await self.app.state.writer.store([batch])
            if records:
                keeper = ProgressKeeper(self.services)
                keeper.note(batch)
                await keeper.flush()
        (found,) = (await self.client.get(f"/api/v1/training/jobs/{job.id}/incidents")).json()
        return dict(found)

    async def start_steps(self, job_id: str) -> list[int | None]:
        job = (await self.client.get(f"/api/v1/training/jobs/{job_id}")).json()
        return [each["start_step"] for each in job["generations"]]


@pytest.fixture
async def scripts(app: FastAPI, services: Services, client: httpx.AsyncClient) -> Scripts:
    return Scripts(app, services, client)


@pytest.mark.parametrize(
    ("before", "after", "resumed", "lost", "words"),
    [
        (list(range(1, 56)), [41, 42], 40, 15, " from step 40; 15 steps had to be repeated"),
        (list(range(1, 11)), [11], 10, 0, " from step 10; no step was lost"),
        ([0, 1, 2, 3, 4], [0, 1], 0, 5, " from step 0; 5 steps had to be repeated"),
        ([10, 20, 50], [50], None, None, UNKNOWN),  # it may have gone on from any step up to 49
        ([10, 20, 50], [60], None, None, UNKNOWN),
        ([49, 99, 149, 199], [49, 99], None, None, UNKNOWN),  # Lightning logs every 50th step: it may have gone on from any step up to 48
        ([10, 20, 30, 40, 50], [10, 20], None, None, UNKNOWN),
        ([4, 8, 12, 16], [4], None, None, UNKNOWN),
        ([1, 50, 51], [1], None, None, UNKNOWN),
        ([49], [49], None, None, UNKNOWN),  # one step tells nothing of how many lie between two
        ([1, 2, 3], [10, 11], None, None, UNKNOWN),
        ([], [], None, None, UNKNOWN),
        ([1, 2], [], None, None, UNKNOWN),
        ([], [1, 2], None, None, UNKNOWN),
    ],
)
async def test_lost_steps_are_told_where_the_scripts_own_words_tell_them(
    scripts: Scripts, before: list[int], after: list[int], resumed: int | None, lost: int | None, words: str
) -> None:
    incident = await scripts.restarted(before, after)
    assert (incident["resumed_step"], incident["steps_lost"], incident["seconds_lost"]) == (resumed, lost, None)
    assert incident["done"] == f"all ranks restarted as generation 2{words}"


async def test_a_trainer_that_says_from_where_it_went_on_is_believed(scripts: Scripts) -> None:
    """With accumulation it reports each fourth step, which alone would tell nothing."""
    incident = await scripts.restarted([4, 8, 12, 16, 20], [12, 16], loaded=8)
    assert (incident["resumed_step"], incident["steps_lost"]) == (8, 12)
    assert incident["done"] == "all ranks restarted as generation 2 from step 8; 12 steps had to be repeated"
    assert await scripts.start_steps(incident["job_id"]) == [None, 8]


async def test_what_a_script_does_not_tell_is_no_number(scripts: Scripts) -> None:
    """Zero repeated steps would be a claim, and so would step 0."""
    job_id = (await scripts.restarted([1, 2, 3], [1, 2]))["job_id"]
    assert await scripts.start_steps(job_id) == [None, None]
    goodput = (await scripts.client.get(f"/api/v1/training/jobs/{job_id}/goodput")).json()
    assert (goodput["goodput"], goodput["useful_steps"], goodput["redone_steps"]) == (None, None, None)


async def test_a_script_that_tells_of_no_steps_has_recovered_once_it_runs_again(scripts: Scripts) -> None:
    """It was told as stopped."""
    incident = await scripts.restarted([], [])
    assert (incident["outcome"], incident["outage_seconds"]) == ("recovered", 6.0)
    under_way = await scripts.restarted([], [], runs_again=False)
    assert (under_way["outcome"], under_way["outage_seconds"]) == ("open", None)


async def logged(scripts: Scripts, *steps: MetricValues) -> str:
    """A completed script that has logged these values, from step 0 on."""
    async with scripts.services.write() as session:
        job = await factories.create_job(session, spec=SCRIPT, state=JobState.COMPLETED, generation=1, started_at=START)
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=2, started_at=START, store_token="t"))
    records = [MetricRecord(seq=step + 1, step=step, time=START.timestamp() + step, values=values) for step, values in enumerate(steps)]
    await scripts.app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=records)])
    return job.id


async def compared(scripts: Scripts, *job_ids: str) -> dict[str, Any]:
    answer = await scripts.client.get("/api/v1/training/compare", params={"jobs": ",".join(job_ids)})
    (found,) = answer.json()["items"]
    return dict(found)


async def test_scripts_that_only_begin_alike_are_not_the_same_run(scripts: Scripts) -> None:
    one = await logged(scripts, {"loss": 3.0, "acc": 0.1}, {"loss": 2.0, "acc": 0.2}, {"loss": 1.0, "acc": 0.3})
    other = await logged(scripts, {"loss": 3.0, "acc": 0.1}, {"loss": 2.5, "acc": 0.2}, {"loss": 1.5, "acc": 0.4})
    found = await compared(scripts, one, other)
    assert (found["verdict"], found["same_run"]) == ("diverged", False)
    assert found["text"].startswith("equal until step 0, then differs: loss 2.0 and 2.5 at step 1")
    assert [(metric["name"], metric["compared"], metric["equal"]) for metric in found["metrics"]] == [("loss", 3, 1), ("acc", 3, 2)]
    assert found["jobs"][0]["last_step"] == 2


async def test_equal_scripts_have_the_same_logged_numbers_whatever_their_speed(scripts: Scripts) -> None:
    one = await logged(scripts, {"loss": 3.0, "train/step_time": 0.1, "samples_per_second": 7.0}, {"loss": 2.0})
    other = await logged(scripts, {"loss": 3.0, "train/step_time": 0.2, "samples_per_second": 8.0}, {"loss": 2.0})
    found = await compared(scripts, one, other)
    assert (found["verdict"], found["text"]) == ("same", "same logged numbers, to the last bit: 2 of 2 steps equal, on 2 ranks")
    assert [metric["name"] for metric in found["metrics"]] == ["loss"]


async def test_scripts_with_no_number_in_common_cannot_be_compared(scripts: Scripts) -> None:
    one = await logged(scripts, {"loss_g": 3.0}, {"loss_g": 2.0})
    for other in (await logged(scripts, {"loss_d": 3.0}), await logged(scripts)):
        assert (await compared(scripts, one, other))["verdict"] == "nothing_to_compare"
