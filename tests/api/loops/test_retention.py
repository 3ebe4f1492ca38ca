"""Retention deletes what a job's policy does not keep, and never the last checkpoint from before its loss was NaN."""

from __future__ import annotations

import httpx

from paceline.api.core.context import Services
from paceline.api.loops import retention
from paceline.cluster.states import CheckpointState
from paceline.db.models.jobs import GenerationRow
from paceline.db.repositories import checkpoints as checkpoint_rows
from tests import factories


async def test_the_last_checkpoint_from_before_a_nan_stays_while_a_new_generation_goes_on_with_it(
    services: Services, client: httpx.AsyncClient
) -> None:
    """The ranks have been started again and have told no loss yet."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, generation=4, progress={"not_finite": {"step": 1001, "generation": 3}})
        (await session.get_one(GenerationRow, (job.id, 4))).start_step = 1400
        session.add_all(factories.checkpoint(job, node, step=step) for step in (800, 900, 1200, 1300, 1400))
    await retention.step_once(services, services.now())
    async with services.control.read() as session:
        kept = [row.step for row in await checkpoint_rows.present_of_job(session, job.id) if row.state is CheckpointState.COMMITTED]
    assert sorted(kept) == [900, 1200, 1300, 1400]
    listed = (await client.get(f"/api/v1/checkpoints/jobs/{job.id}")).json()["items"]
    assert [each["step"] for each in listed if each["deleted_next"] and each["state"] == "committed"] == [1200]
