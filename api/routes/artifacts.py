"""What a job leaves to be downloaded: TensorBoard event files."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from api.deps import ReadSession, Services, ServicesDep
from api.errors import ProblemError
from api.services import event_files, jobs, steps
from cluster.lineage import Line
from db.models.jobs import JobRow
from db.repositories import jobs as job_rows
from db.repositories import step_records

router = APIRouter(prefix="/training", tags=["artifacts"])
ZIP = "application/zip"


@router.get("/jobs/{job_id}/tensorboard", response_class=StreamingResponse, responses={200: {"content": {ZIP: {}}}})
async def job_event_files(job_id: str, session: ReadSession, services: ServicesDep) -> StreamingResponse:
    """Every scalar of the job as TensorBoard event files, zipped: each step once, as it stands."""
    job = await jobs.find(session, job_id)
    async with services.metrics.read() as points:
        if not await step_records.ranks(points, job_id):
            raise ProblemError(
                "nothing_recorded", f"job {job.name} is {job.state.value} and has reported no step yet; ask again when it has"
            )
        lines = await steps.lines_of(points, job_id, await job_rows.generations_of(session, job_id))
    return StreamingResponse(_event_files(services, job, lines), media_type=ZIP, headers=attachment(f"{job.name}-tensorboard.zip"))


async def _event_files(services: Services, job: JobRow, lines: list[Line]) -> AsyncIterator[bytes]:
    """In a session of its own: the route's is over when the first byte is sent."""
    async with services.metrics.read() as points:
        async for piece in event_files.stream(points, job, lines):
            yield piece


def attachment(name: str) -> dict[str, str]:
    """`name` is made of a job's name and the like: nothing in it needs quoting."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}
