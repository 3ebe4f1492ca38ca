"""Who is to blame for an incident: as it is opened, and again as long as ranks have yet to tell how they ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.schemas.jobs import Failure
from api.services import job_lifecycle
from api.services.identity import SYSTEM
from api.services.incident_views import what_happened
from api.services.job_views import describe_failure, rank_view, report_of
from cluster.failures import LEFT_EARLY, end_reason_of, is_victim
from cluster.states import EndReason, RankState
from cluster.views import Decision
from db.models.incidents import IncidentRow
from db.models.jobs import JobRow, RankRow
from training.link import FailureReport

#: Found by the coordinator itself: how the ranks ended afterwards was its own doing.
_KNOWN_FROM_THE_START = frozenset({EndReason.HANG, EndReason.START_TIMEOUT, EndReason.STOP_TIMEOUT})


def describe(ranks: Sequence[RankRow], silent: Collection[str], decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    """As `describe_failure`. A node that is given up on its peers' word comes before them: it has no word of its own. Neither has a
    rank that hangs."""
    if decision.reason is EndReason.HANG:
        return _describe_hang(ranks, decision, node_names)
    found = describe_failure(ranks, node_names)
    if decision.reason is not EndReason.NODE_LOST:
        return found
    gone = [rank for rank in ranks if rank.node_id in silent and rank.rank not in decision.survivors and not rank_view(rank).stopped]
    failures = [_given_up(rank, node_names) for rank in gone] + (_unfolded(found) if found else [])
    return failures[0].model_copy(update={"victims": failures[1:]}).model_dump(mode="json") if gone else found


def _given_up(rank: RankRow, node_names: Mapping[str, str]) -> Failure:
    name = node_names.get(rank.node_id, rank.node_id)
    said = f"the agent of node {name} does not answer, and other ranks have lost their connection to it"
    return Failure(kind="node_lost", rank=rank.rank, node_name=name, generation=rank.generation, message=said, step=rank.step)


def _describe_hang(ranks: Sequence[RankRow], decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    """None where no rank is to blame."""
    hung = [_hung(rank, decision.why, node_names) for rank in ranks if rank.rank in decision.culprits]
    return hung[0].model_copy(update={"victims": hung[1:]}).model_dump(mode="json") if hung else None


def _hung(rank: RankRow, why: str, node_names: Mapping[str, str]) -> Failure:
    name = node_names.get(rank.node_id, rank.node_id)
    return Failure(kind="hang", rank=rank.rank, node_name=name, generation=rank.generation, message=why, step=rank.step)


def _unfolded(failure: dict[str, Any]) -> list[Failure]:
    culprit = Failure.model_validate(failure)
    return [culprit.model_copy(update={"victims": []}), *culprit.victims]


@dataclass(frozen=True)
class Finding:
    """What is known of an incident by now. `corrected`: somebody else is to blame than it says so far."""

    failure: dict[str, Any] | None  # None: as it was
    cause: EndReason | None
    corrected: bool
    settled: bool


def examine(incident: IncidentRow, ranks: Sequence[RankRow], node_names: Mapping[str, str], now: datetime) -> Finding | None:
    """What is now known about the cause of an incident; None where nothing is new."""
    settled = all(rank.state is RankState.MOVED or rank_view(rank).settled(now) for rank in ranks)
    failure = None if incident.cause in _KNOWN_FROM_THE_START else describe_failure(ranks, node_names)
    if failure is None or not _speaks_for_itself(failure, ranks) or failure == incident.culprit:
        return Finding(None, incident.cause, corrected=False, settled=True) if settled else None
    return Finding(failure, _cause(failure, ranks), corrected=not _same_culprit(failure, incident.culprit), settled=settled)


def _speaks_for_itself(failure: dict[str, Any], ranks: Sequence[RankRow]) -> bool:
    """It is no victim, which would only stand for a culprit that nobody knows."""
    report = _report_of(failure, ranks)
    return failure["kind"] == "node_lost" or failure["message"] == LEFT_EARLY or (report is not None and not is_victim(report))


def _cause(failure: dict[str, Any], ranks: Sequence[RankRow]) -> EndReason:
    if failure["message"] == LEFT_EARLY:
        return EndReason.RANK_CRASHED
    report = _report_of(failure, ranks)
    return EndReason.NODE_LOST if failure["kind"] == "node_lost" or report is None else end_reason_of(report)


def _report_of(failure: dict[str, Any], ranks: Sequence[RankRow]) -> FailureReport | None:
    return next((report_of(rank) for rank in ranks if rank.rank == failure["rank"]), None)


def _same_culprit(one: dict[str, Any], other: dict[str, Any] | None) -> bool:
    return isinstance(other, dict) and all(one[name] == other.get(name) for name in ("rank", "kind", "message"))


async def carry_out(session: AsyncSession, job: JobRow, incident: IncidentRow, finding: Finding, now: datetime) -> None:
    """Bring the ledger, and the job where it still shows this failure, up to what is known by now."""
    incident.settled = finding.settled
    if finding.failure is None:
        return
    blamed, incident.culprit, incident.cause = incident.culprit, finding.failure, finding.cause
    if finding.corrected:
        incident.why = corrected(incident.why, finding.failure)
    await job_lifecycle.correct_failure(session, job, incident.generation, finding.failure, finding.cause)
    if finding.corrected:
        await _event(session, job, incident, blamed, now)


def corrected(why: str, failure: dict[str, Any]) -> str:
    """A decision's reason is what happened; then, behind the last semicolon, what is done about it."""
    return f"rank {failure['rank']}: {failure['message']}; {why.rpartition('; ')[2]}"


async def _event(session: AsyncSession, job: JobRow, incident: IncidentRow, blamed: dict[str, Any] | None, now: datetime) -> None:
    culprit = Failure.model_validate(incident.culprit)
    first = blamed.get("rank") if isinstance(blamed, dict) else None
    before = f"; rank {first} was heard of first, and was dragged down" if first not in (None, culprit.rank) else ""
    data = {"incident_id": incident.id, "generation": incident.generation, "rank": culprit.rank}
    message = f"rank {culprit.rank} was to blame{before}"
    await job_lifecycle.record_event(session, job, "job.culprit_known", SYSTEM, what_happened(culprit), message, now, data)
