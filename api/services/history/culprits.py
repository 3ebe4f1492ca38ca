"""The culprit of an incident: as it is opened, and again as long as ranks have yet to report how they ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.identity import SYSTEM
from paceline.api.schemas.jobs import Failure
from paceline.api.services.history.incident_views import what_happened
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.specs.job_views import describe_failure, rank_view, report_of
from paceline.cluster.policy.decisions import Decision
from paceline.cluster.policy.failures import LEFT_GROUP, TOO_EARLY, end_reason_of, is_victim, left_group
from paceline.cluster.policy.quiet import Suspicion
from paceline.cluster.states import EndReason, JobState, RankState
from paceline.db.models.incidents import IncidentRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.training.link import FailureReport
from paceline.training.reporting.failure_kinds import first_line

#: Found by the coordinator itself: how the ranks ended afterwards was its own doing.
_KNOWN_FROM_THE_START = frozenset({EndReason.HANG, EndReason.START_TIMEOUT, EndReason.STOP_TIMEOUT})
#: Found by a trainer of ours, which then ends; of a script by the coordinator.
_OF_A_LOSS = frozenset({EndReason.LOSS_NOT_FINITE, EndReason.LOSS_SPIKE})


def describe(
    ranks: Sequence[RankRow],
    silent: Collection[str],
    decision: Decision,
    node_names: Mapping[str, str],
    suspicion: Suspicion | None = None,
) -> dict[str, Any] | None:
    """The failure, as `describe_failure` gives it. A node that is given up on its peers' reports comes before them: it has none of its
    own. Neither has a rank that hangs; `suspicion`: what was seen of a script's. A job that its user's policy ends has no failed rank:
    rank 0 has reported the loss."""
    if decision.reason is EndReason.HANG:
        return _describe_hang(ranks, decision, node_names, suspicion)
    found = describe_failure(ranks, node_names)
    if decision.reason in _OF_A_LOSS and (found is None or found["kind"] != decision.reason):
        return _describe_loss(ranks, decision, node_names) if decision.to is JobState.STOPPING else None
    if decision.reason is not EndReason.NODE_LOST:
        return found
    gone = [rank for rank in ranks if rank.node_id in silent and not rank_view(rank).stopped]
    failures = [_given_up(rank, node_names) for rank in gone] + (_unfolded(found) if found else [])
    return failures[0].model_copy(update={"victims": failures[1:]}).model_dump(mode="json") if gone else found


def _given_up(rank: RankRow, node_names: Mapping[str, str]) -> Failure:
    name = node_names.get(rank.node_id, rank.node_id)
    said = f"the agent of node {name} does not answer, and other ranks have lost their connection to it"
    return Failure(kind="node_lost", rank=rank.rank, node_name=name, generation=rank.generation, message=said, step=rank.step)


def _describe_hang(
    ranks: Sequence[RankRow], decision: Decision, node_names: Mapping[str, str], suspicion: Suspicion | None
) -> dict[str, Any] | None:
    """The hang as a failure; None where no rank is the culprit. For a script, whose hang nothing else reports, the first rank stands for
    all then."""
    blamed = [rank for rank in ranks if rank.rank in decision.culprits] or list(ranks if suspicion is not None else [])[:1]
    hung = [_hung(rank, decision.why, node_names, suspicion) for rank in blamed]
    return hung[0].model_copy(update={"victims": hung[1:]}).model_dump(mode="json") if hung else None


def _describe_loss(ranks: Sequence[RankRow], decision: Decision, node_names: Mapping[str, str]) -> dict[str, Any] | None:
    first = next((rank for rank in ranks if rank.rank == 0), None)
    if first is None or decision.reason is None:
        return None
    name = node_names.get(first.node_id, first.node_id)
    kind, message = decision.reason.value, decision.why
    return Failure(kind=kind, rank=0, node_name=name, generation=first.generation, message=message, step=first.step).model_dump(mode="json")


def _hung(rank: RankRow, why: str, node_names: Mapping[str, str], suspicion: Suspicion | None) -> Failure:
    where = suspicion.where.get(str(rank.rank), "") if suspicion is not None else ""
    stack = suspicion.stack if suspicion is not None and suspicion.ranks[:1] == (rank.rank,) else ""
    name = node_names.get(rank.node_id, rank.node_id)
    return Failure(
        kind="hang", rank=rank.rank, node_name=name, generation=rank.generation, message=why, where=where, traceback=stack, step=rank.step
    )


def _unfolded(failure: dict[str, Any]) -> list[Failure]:
    culprit = Failure.model_validate(failure)
    return [culprit.model_copy(update={"victims": []}), *culprit.victims]


@dataclass(frozen=True)
class Finding:
    """The present knowledge of an incident. `corrected`: another rank is the culprit than it says so far."""

    failure: dict[str, Any] | None  # None: as it was
    cause: EndReason | None
    corrected: bool
    is_final: bool


def examine(
    incident: IncidentRow,
    ranks: Sequence[RankRow],
    node_names: Mapping[str, str],
    up_since: datetime | None,
    now: datetime,
    *,
    standing: Collection[str] = (),
) -> Finding | None:
    """The new knowledge about the cause of an incident; None where nothing is new. `up_since`: see `JobView`. `standing`: of a script, the nodes that
    stay: their agents tell ranks to end only after a failure was decided on."""
    is_final = all(rank.state is RankState.MOVED or rank_view(rank, up_since=up_since).is_finished(now) for rank in ranks)
    known = incident.cause in _KNOWN_FROM_THE_START or (incident.cause in _OF_A_LOSS and not _is_trainer_report(incident.culprit))
    failure = None if known else describe_failure(ranks, node_names)
    if failure is not None and is_final and all(rank.node_id in standing for rank in ranks):
        failure = _describe_left_group(failure, ranks, node_names) or failure
    if failure is None or not _is_culprit_report(failure, ranks) or failure == incident.culprit:
        return Finding(None, incident.cause, corrected=False, is_final=True) if is_final else None
    return Finding(failure, _cause(failure, ranks), corrected=not _same_culprit(failure, incident.culprit), is_final=is_final)


def _describe_left_group(found: dict[str, Any], ranks: Sequence[RankRow], node_names: Mapping[str, str]) -> dict[str, Any] | None:
    """The failure with the rank as its culprit that had left the process group and still ran; None where no rank is known to have."""
    reports = [report for rank in ranks if (report := report_of(rank)) is not None]
    left = left_group(reports, [rank.rank for rank in ranks if rank.outcome == "paused"])
    if left is None or any(rank.state is RankState.LOST or rank.outcome == "completed" for rank in ranks):
        return None
    rank = next(rank for rank in ranks if rank.rank == left)
    name = node_names.get(rank.node_id, rank.node_id)
    culprit = Failure(kind="exit", rank=left, node_name=name, generation=rank.generation, message=LEFT_GROUP, step=rank.step)
    victims = [each for each in _unfolded(found) if each.rank != left]
    return culprit.model_copy(update={"victims": victims}).model_dump(mode="json")


def _is_trainer_report(culprit: dict[str, Any] | None) -> bool:
    """Whether a trainer has ended by itself, and not the coordinator a script."""
    return bool(culprit and culprit.get("exception"))


def _is_culprit_report(failure: dict[str, Any], ranks: Sequence[RankRow]) -> bool:
    """Whether the failure is the culprit's own, and no victim's, which would only stand for an unknown culprit."""
    report = _report_of(failure, ranks)
    return failure["kind"] == "node_lost" or failure["message"] in TOO_EARLY or (report is not None and not is_victim(report))


def knows_better(known: dict[str, Any] | None, found: dict[str, Any], ranks: Sequence[RankRow]) -> bool:
    """Whether a failure that is known of the same generation names a rank that left too early, and the one that was found now only a rank that lost it:
    who left is known once all ranks have ended, and not from what the others say."""
    if not isinstance(known, dict) or known.get("generation") != found["generation"]:
        return False
    return known.get("message") in TOO_EARLY and not _is_culprit_report(found, ranks)


def _cause(failure: dict[str, Any], ranks: Sequence[RankRow]) -> EndReason:
    if failure["message"] in TOO_EARLY:
        return EndReason.RANK_CRASHED
    report = _report_of(failure, ranks)
    return EndReason.NODE_LOST if failure["kind"] == "node_lost" or report is None else end_reason_of(report)


def _report_of(failure: dict[str, Any], ranks: Sequence[RankRow]) -> FailureReport | None:
    return next((report_of(rank) for rank in ranks if rank.rank == failure["rank"]), None)


def _same_culprit(one: dict[str, Any], other: dict[str, Any] | None) -> bool:
    return isinstance(other, dict) and all(one[name] == other.get(name) for name in ("rank", "kind", "message"))


async def carry_out(session: AsyncSession, job: JobRow, incident: IncidentRow, finding: Finding, now: datetime) -> None:
    """Correct the incident, and the job where it still shows this failure."""
    incident.cause_is_final = finding.is_final
    if finding.failure is None:
        return
    blamed, incident.culprit, incident.cause = incident.culprit, finding.failure, finding.cause
    if finding.corrected:
        incident.why = corrected(incident.why, finding.failure)
    await job_lifecycle.correct_failure(session, job, incident.generation, finding.failure, finding.cause)
    if finding.corrected:
        await _event(session, job, incident, blamed, now)


def corrected(why: str, failure: dict[str, Any]) -> str:
    """The reason of a decision with another culprit. A reason says what happened; then, behind the last semicolon, what is done about
    it."""
    return f"rank {failure['rank']}: {first_line(failure['message'])}; {why.rpartition('; ')[2]}"


async def _event(session: AsyncSession, job: JobRow, incident: IncidentRow, blamed: dict[str, Any] | None, now: datetime) -> None:
    culprit = Failure.model_validate(incident.culprit)
    first = blamed.get("rank") if isinstance(blamed, dict) else None
    before = f"; rank {first} was heard of first, and was dragged down" if first not in (None, culprit.rank) else ""
    data = {"incident_id": incident.id, "generation": incident.generation, "rank": culprit.rank}
    message = f"rank {culprit.rank} was to blame{before}"
    await job_lifecycle.record_event(session, job, "job.culprit_known", SYSTEM, what_happened(culprit), message, now, data)
