"""Offered images, histograms and tables: noted like other artifacts, within limits of their own, and without an event for each."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.identity import node_actor
from paceline.api.errors import ProblemError
from paceline.api.services.lifecycle import events
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import media as rows
from paceline.monitoring.artifacts import Offer
from paceline.monitoring.media import MAX_JOB_BYTES, MAX_JOB_OBJECTS, MAX_OBJECT_BYTES
from paceline.monitoring.points import MAX_NAME_CHARACTERS, MAX_STEP


async def note(session: AsyncSession, node: NodeRow, offer: Offer, now: datetime) -> ArtifactRow | None:
    """Note an object for which there is room. Returns None for any other, which its agent then removes; the job's history tells of the first."""
    artifact, label = offer.artifact, offer.artifact.media
    assert label is not None, "only offers of media come here"
    if not 0 < len(label.key) <= MAX_NAME_CHARACTERS or not label.key.isprintable() or not 0 <= label.count <= MAX_STEP:
        raise ProblemError("invalid_request", f"media {label.key!r} of {label.count} items: needs a printable key and a count")
    error = await _refusal(session, offer)
    if error is not None and await rows.any_refused(session, offer.job_id):
        return None
    row = ArtifactRow(
        job_id=offer.job_id,
        generation=offer.generation,
        rank=offer.rank,
        node_id=node.id,
        name=artifact.name,
        kind="media",
        request_id=None,
        first_step=artifact.first_step,
        last_step=artifact.first_step,
        bytes=0 if error else artifact.bytes,
        sha256="" if error else artifact.sha256,
        error=error,
        created_at=now,
        media_key=label.key,
        media_kind=label.kind,
        media_count=label.count,
    )
    session.add(row)
    await session.flush()
    if error is not None:
        await _tell(session, node, row, error, now)
    return row


async def _refusal(session: AsyncSession, offer: Offer) -> str | None:
    size = offer.artifact.bytes
    if size > MAX_OBJECT_BYTES:
        return f"it has {size:,} bytes; the limit is {MAX_OBJECT_BYTES:,} for one key at one step"
    objects, stored = await rows.held_by_job(session, offer.job_id)
    if objects >= MAX_JOB_OBJECTS:
        return f"the job has {objects:,} images, histograms and tables, which is the limit: log less often"
    if stored + size > MAX_JOB_BYTES:
        return f"the job's images, histograms and tables have {stored:,} bytes; the limit is {MAX_JOB_BYTES:,}: log smaller ones, or less often"
    return None


async def _tell(session: AsyncSession, node: NodeRow, row: ArtifactRow, error: str, now: datetime) -> None:
    await events.record(
        session,
        type="job.media_dropped",
        actor=node_actor(node),
        cause=error,
        message=f"images, histograms or tables are dropped, for example {row.media_key} at step {row.first_step} of rank {row.rank}",
        job_id=row.job_id,
        node_id=node.id,
        generation=row.generation,
        data={"key": row.media_key, "step": row.first_step, "rank": row.rank},
        time=now,
    )
