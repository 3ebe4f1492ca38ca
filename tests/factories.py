"""Rows and records for tests: valid by default, each argument overrides one thing."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import identity
from paceline.api.services.specs.node_facets import card_of
from paceline.cluster.states import Intent, JobState, NodeState, RankState
from paceline.credentials import NODE_PREFIX, hash_secret, new_secret
from paceline.db.base import new_id
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.identity import UserRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.points import LogLine, MetricRecord
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec

#: What a metric may be on the wire.
Value = float | Literal["NaN", "Infinity", "-Infinity"]
MetricValues = dict[str, Value]
HOUR = timedelta(hours=1)
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def job_spec(**changes: Any) -> JobSpec:
    document: dict[str, Any] = {
        "name": "digits",
        "model": {"kind": "mlp", "hidden": [16]},
        "data": {"kind": "digits"},
        "parallelism": {"strategy": "single"},
        "training": {"steps": 100, "global_batch_size": 8},
    }
    return JobSpec.model_validate(document | changes)


async def create_user(session: AsyncSession, *, name: str = "ada", role: str = "admin") -> tuple[UserRow, str]:
    """(user, an API key of the same role)."""
    user = UserRow(name=name, role=role, created_at=START)
    session.add(user)
    await session.flush()
    key, _ = await identity.create_api_key(session, user, name="test", role=role, now=START, expires_at=None)
    return user, key


async def create_node(
    session: AsyncSession, *, name: str = "node-a", state: NodeState = NodeState.READY, **columns: Any
) -> tuple[NodeRow, str]:
    """(node, its credential)."""
    credential = new_secret(NODE_PREFIX)
    defaults: dict[str, Any] = {
        "name": name,
        "state": state,
        "state_since": START,
        "credential_hash": hash_secret(credential),
        "address": "127.0.0.1",
        "store_port": 29500,
        "slots": 2,
        "joined_at": START,
        "heartbeat_at": START,
    }
    node = NodeRow(**(defaults | columns))
    session.add(node)
    await session.flush()
    return node, credential


async def create_job(session: AsyncSession, *, spec: JobSpec | None = None, state: JobState = JobState.QUEUED, **columns: Any) -> JobRow:
    spec = spec or job_spec()
    defaults: dict[str, Any] = {
        "name": spec.name,
        "project": spec.project,
        "priority": spec.priority,
        "labels": spec.labels,
        "state": state,
        "desired": Intent.RUN,
        "spec": StoredSpec(spec.model_dump(mode="json")),
        "world_size": spec.world_size,
        "created_by": new_id(),
        "created_at": START,
        "queued_at": START,
        "state_since": START,
    }
    job = JobRow(**(defaults | columns))
    session.add(job)
    await session.flush()
    return job


async def create_running_job(session: AsyncSession, node: NodeRow, *, generation: int = 1, **columns: Any) -> JobRow:
    """A job whose ranks of one generation all run on `node`."""
    job = await create_job(session, state=JobState.RUNNING, generation=generation, started_at=START, **columns)
    session.add(GenerationRow(job_id=job.id, generation=generation, world_size=job.world_size, started_at=START, store_token="t"))
    await session.flush()
    for rank in range(job.world_size):
        session.add(
            RankRow(
                job_id=job.id,
                generation=generation,
                rank=rank,
                node_id=node.id,
                slot=rank,
                card=card_of(node, rank),
                local_rank=rank,
                node_rank=0,
                state=RankState.RUNNING,
                pid=1000 + rank,
                updated_at=START,
            )
        )
    await session.flush()
    return job


def records(first: int, count: int, *, seq: int | None = None, **values: Value) -> list[MetricRecord]:
    """Steps first, first + 1, ...; `seq` counts from 1 with the first step unless given. Loss falls, unless given."""
    return [
        MetricRecord(
            seq=(seq or first) + index,
            step=first + index,
            time=START.timestamp() + first + index,
            values={"loss": math.exp(-(first + index) / 100), **values},
        )
        for index in range(count)
    ]


def log_lines(count: int, *, seq: int = 1, text: str = "line {n}", level: Any = "info") -> list[LogLine]:
    return [
        LogLine(seq=seq + index, time=START.timestamp() + seq + index, level=level, text=text.format(n=seq + index))
        for index in range(count)
    ]


def checkpoint(job: JobRow, node: NodeRow, *, step: int, **columns: Any) -> CheckpointRow:
    folder = f"/checkpoints/{job.id}/step-{step}.g{job.generation}"
    defaults: dict[str, Any] = {"directory": folder, "bytes": 1000, "manifest_sha256": "0" * 64, "metrics": {}, "created_at": START}
    return CheckpointRow(job_id=job.id, node_id=node.id, step=step, generation=job.generation, **(defaults | columns))
