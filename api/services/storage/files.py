"""Deletes the files of jobs that ended long ago, and says so once for each job and pass."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from paceline.api.core.identity import SYSTEM
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.lifecycle import events
from paceline.api.services.storage.keeping import JobTurns, RetentionSweep
from paceline.db.repositories import artifact_files
from paceline.monitoring.words import plural

JOBS_AT_ONCE = 20
BATCH = 50


async def drop_old(sweep: RetentionSweep, turns: JobTurns, age: timedelta) -> None:
    """Delete files of jobs that ended longer ago than `age` and that were stored before then, for as long as the pass lasts."""
    while not sweep.pace.over:
        async with sweep.services.control.read() as session:
            jobs = await artifact_files.old_jobs(session, sweep.now - age, JOBS_AT_ONCE, besides=turns.failed)
        for job_id in jobs:
            if not sweep.pace.over:
                await turns.take(job_id, partial(_drop, sweep, job_id, age))
        if len(jobs) < JOBS_AT_ONCE:
            return


async def _drop(sweep: RetentionSweep, job_id: str, age: timedelta) -> int:
    """Delete the old files of a job. Returns how many there were."""
    count = size = 0
    while not sweep.pace.over:
        async with sweep.services.control.read() as session:
            some = await artifact_files.old_files(session, job_id, sweep.now - age, BATCH)
        if not some:
            break
        for row in some:
            await stored_artifacts.remove(sweep.services, row)
            count, size = count + 1, size + row.bytes
    why = f"older than {age.days} days"
    async with sweep.services.write() as session:
        await events.record(
            session,
            type="job.files_removed",
            actor=SYSTEM,
            cause=why,
            message=f"{plural(count, 'file')} in its artifacts ({size:,} bytes) {'was' if count == 1 else 'were'} removed: {why}",
            job_id=job_id,
            data={"files": count, "bytes": size},
            time=sweep.now,
        )
    return count
