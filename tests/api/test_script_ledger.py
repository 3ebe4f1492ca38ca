"""What the ledger says of a script that was started again: what its steps tell, and never more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.deps import Services
from api.services.progress import ProgressKeeper
from cluster.states import EndReason, JobState
from db.models.incidents import IncidentRow
from db.models.jobs import GenerationRow
from monitoring.points import MetricRecord, RankBatch
from tests import factories
from tests.factories import START
from training.spec.job import JobSpec

SCRIPT = JobSpec.model_validate({"name": "own", "script": {"path": "/srv/train.py"}})
UNKNOWN = "; how many steps had to be done again is not known: the script does not tell of each"


class Scripts:
    def __init__(self, app: FastAPI, services: Services, client: httpx.AsyncClient) -> None:
        self.app, self.services, self.client = app, services, client

    async def restarted(self, before: list[int], after: list[int], *, runs_again: bool = True) -> dict[str, Any]:
        """The incident of a job whose first generation told of the steps `before`, and whose second of `after`."""
        async with self.services.write() as session:
            job = await factories.create_job(session, spec=SCRIPT, state=JobState.RUNNING, generation=2, started_at=START)
            for number in (1, 2):
                begun = START + timedelta(seconds=10 * number)
                session.add(GenerationRow(job_id=job.id, generation=number, world_size=1, started_at=begun, store_token="t"))
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


@pytest.fixture
async def scripts(app: FastAPI, services: Services, client: httpx.AsyncClient) -> Scripts:
    return Scripts(app, services, client)


@pytest.mark.parametrize(
    ("before", "after", "resumed", "lost", "words"),
    [
        (list(range(1, 56)), [41, 42], 40, 15, " from step 40; 15 steps had to be done again"),
        (list(range(1, 11)), [11], 10, 0, " from step 10; no step was lost"),
        ([0, 1, 2, 3, 4], [0, 1], 0, 5, " from step 0; 5 steps had to be done again"),
        ([10, 20, 50], [50], None, None, UNKNOWN),  # it may have gone on from any step up to 49
        ([10, 20, 50], [60], None, None, UNKNOWN),
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
    assert incident["done"] == f"all ranks were started again as generation 2{words}"


async def test_a_script_that_tells_of_no_steps_has_recovered_once_it_runs_again(scripts: Scripts) -> None:
    """It was told as stopped."""
    incident = await scripts.restarted([], [])
    assert (incident["outcome"], incident["outage_seconds"]) == ("recovered", 6.0)
    under_way = await scripts.restarted([], [], runs_again=False)
    assert (under_way["outcome"], under_way["outage_seconds"]) == ("open", None)
