"""Prometheus exposition at /metrics, computed when asked: counts from the tables, counters of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import vitals
from paceline.api.core.disk import Disk
from paceline.api.core.troubles import SubjectKind, Troubles
from paceline.api.deps import ReadSession, ServicesDep, Viewer
from paceline.api.services.ingest.writer import IngestCounters
from paceline.api.services.nodes import gauges
from paceline.cluster.states import JobState, NodeState
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows

router = APIRouter(include_in_schema=False)


async def _counts(session: AsyncSession, table: type[JobRow] | type[NodeRow]) -> dict[str, int]:
    rows = await session.execute(select(table.state, func.count()).group_by(table.state))
    return {str(state): count for state, count in rows}


def _gauge(registry: CollectorRegistry, name: str, help: str, states: type[JobState] | type[NodeState], counts: Mapping[str, int]) -> None:
    gauge = Gauge(name, help, ["state"], registry=registry)
    for state in states:
        gauge.labels(state.value).set(counts.get(state.value, 0))


#: Gauges of each running job: the key in its progress, the metric, and its description.
_JOB_GAUGES = (
    ("step", "paceline_job_step", "Committed steps of a running job"),
    ("samples_per_second", "paceline_job_samples_per_second", "Samples per second of a running job"),
    ("tokens_per_second", "paceline_job_tokens_per_second", "Tokens per second of a running job"),
    ("mfu", "paceline_job_mfu_ratio", "Model FLOPs utilization of a running job; absent where it is not known"),
)


def _job_gauges(registry: CollectorRegistry, jobs: Sequence[JobRow]) -> None:
    for key, name, help in _JOB_GAUGES:
        gauge = Gauge(name, help, ["job_id", "job"], registry=registry)
        for job in jobs:
            value = (job.progress or {}).get(key)
            if value is not None:
                gauge.labels(job.id, job.name).set(float(value))


def _disk_gauges(registry: CollectorRegistry, disk: Disk | None) -> None:
    """The gauges of the disk, absent where the databases are on another machine."""
    if disk is None:
        return
    for name, help, value in (
        ("paceline_disk_free_bytes", "Free disk under the coordinator's databases", disk.free),
        ("paceline_disk_low_bytes", "The watermark: below it points, log lines and files wait on their nodes", disk.limit),
        ("paceline_disk_low", "1 while the free disk is below the watermark", int(disk.low)),
    ):
        Gauge(name, help, registry=registry).set(value)


def _trouble_gauges(registry: CollectorRegistry, troubles: Troubles) -> None:
    failures = Gauge(
        "paceline_loop_failures", "Steps in a row that have failed, of each loop that this process has run", ["loop"], registry=registry
    )
    for name, count in troubles.loop_failures.items():
        failures.labels(name).set(count)
    held_up = Gauge(
        "paceline_held_up", "Jobs, nodes, experiments and pools that a loop of this process cannot go on with", ["kind"], registry=registry
    )
    for kind in get_args(SubjectKind):
        held_up.labels(kind).set(troubles.held_up(kind))


@router.get("/metrics")
async def metrics(request: Request, session: ReadSession, services: ServicesDep, _: Viewer) -> Response:
    registry = CollectorRegistry()
    _gauge(registry, "paceline_jobs", "Jobs by state", JobState, await _counts(session, JobRow))
    _gauge(registry, "paceline_nodes", "Nodes by state", NodeState, await _counts(session, NodeRow))
    _job_gauges(registry, await job_rows.running(session))
    gauges.describe(registry, await node_rows.present(session))
    _disk_gauges(registry, services.disk.state())
    _trouble_gauges(registry, services.troubles)
    counters: IngestCounters = request.app.state.writer.counters
    for name, help, value in (
        ("paceline_metric_records", "Metric records stored by this process", counters.records),
        ("paceline_log_lines", "Log lines stored by this process", counters.log_lines),
        ("paceline_ingest_transactions", "Transactions that stored them", counters.transactions),
    ):
        Counter(name, help, registry=registry).inc(value)
    vitals.describe(registry, services, request.app.state.writer.queued, request.app.state.loops)
    measured: vitals.Vitals = request.app.state.vitals
    return Response(generate_latest(registry) + generate_latest(measured.registry), media_type=CONTENT_TYPE_LATEST)
