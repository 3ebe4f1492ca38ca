"""From rows to what `cluster.decide` and `cluster.placement` look at, and from rank reports to the failure that clients see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from api.schemas.jobs import Failure
from cluster.decide import JobView, RankOutcome, RankView
from cluster.failures import root_cause
from cluster.placement import NodeView, Request
from cluster.states import NodeState, RankState
from db.models.jobs import GenerationRow, JobRow, RankRow
from db.models.nodes import NodeRow
from training.link import FailureReport
from training.spec import FaultTolerance, Resources


def job_view(job: JobRow, generation: GenerationRow | None, ranks: Sequence[RankRow]) -> JobView:
    return JobView(
        state=job.state,
        desired=job.desired,
        end_reason=job.end_reason,
        state_since=job.state_since,
        generation=job.generation,
        generation_since=generation.started_at if generation else None,
        generation_ended_at=generation.ended_at if generation else None,
        restarts=job.restarts,
        max_restarts=FaultTolerance.model_validate(job.spec["fault_tolerance"]).max_restarts,
        ranks=tuple(rank_view(rank) for rank in ranks),
    )


def rank_view(rank: RankRow) -> RankView:
    return RankView(
        rank=rank.rank,
        state=rank.state,
        updated_at=rank.updated_at,
        outcome=cast("RankOutcome | None", rank.outcome),
        failure=_report(rank),
        drained=rank.drained,
        started=rank.pid is not None or rank.outcome is not None or rank.failure is not None or rank.exit_code is not None,
    )


def request_of(job: JobRow) -> Request:
    resources = Resources.model_validate(job.spec["resources"])
    return Request(job.id, resources.nodes, resources.slots_per_node, job.priority, job.queued_at)


def node_views(nodes: Sequence[NodeRow], holders: Sequence[tuple[RankRow, str]]) -> list[NodeView]:
    held: defaultdict[str, set[int]] = defaultdict(set)
    for rank, _ in holders:
        held[rank.node_id].add(rank.slot)
    return [
        NodeView(
            id=node.id,
            name=node.name,
            device=node.device,
            slots=node.slots,
            free=tuple(slot for slot in range(node.slots) if slot not in held[node.id]),
            schedulable=node.state is NodeState.READY,
        )
        for node in nodes
    ]


def describe_failure(ranks: Sequence[RankRow], node_names: Mapping[str, str]) -> dict[str, Any] | None:
    """The culprit with its victims folded under it, as stored with the job; None when no rank has failed."""
    reports = [report for rank in ranks if (report := _report(rank)) is not None]
    by_rank = {rank.rank: rank for rank in ranks}
    lost = [_lost(rank, node_names) for rank in ranks if rank.state is RankState.LOST]
    culprit, victims = root_cause(reports)
    named = [_failure(report, by_rank[report.rank], node_names) for report in ([culprit, *victims] if culprit else [])]
    lost_first = lost and (culprit is None or culprit.kind in ("peer_lost", "signal"))
    failures = [*lost, *named] if lost_first else [*named, *lost]
    if not failures:
        return None
    return failures[0].model_copy(update={"victims": failures[1:]}).model_dump(mode="json")


def _report(rank: RankRow) -> FailureReport | None:
    return None if rank.failure is None else msgspec.convert(rank.failure, FailureReport)


def _failure(report: FailureReport, rank: RankRow, node_names: Mapping[str, str]) -> Failure:
    return Failure(
        kind=report.kind,
        rank=report.rank,
        node_name=node_names.get(rank.node_id, rank.node_id),
        generation=rank.generation,
        message=report.message,
        exception=report.exception,
        traceback=report.traceback,
        step=report.step,
        exit_code=report.exit_code if report.exit_code is not None else rank.exit_code,
        signal=report.signal or rank.signal,
        last_lines=list(report.last_lines),
    )


def _lost(rank: RankRow, node_names: Mapping[str, str]) -> Failure:
    name = node_names.get(rank.node_id, rank.node_id)
    return Failure(
        kind="node_lost", rank=rank.rank, node_name=name, generation=rank.generation, message=f"node {name} is lost", step=rank.step
    )
