"""Incidents as clients see them: the fault, the recovery, the cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.incidents import Incident, Outcome, Phase, RecoveryAction
from paceline.api.schemas.jobs import Failure
from paceline.api.services.history import steps
from paceline.api.services.history.steps import StepRecord
from paceline.api.services.specs.job_words import CURVES_FOUND, CURVES_PRINTED, FAILURE_WORDS
from paceline.cluster.history.incidents import PhaseName, phases
from paceline.cluster.policy.failures import TOO_EARLY
from paceline.cluster.policy.rank_numbers import listed
from paceline.cluster.states import RankState
from paceline.db.models.incidents import IncidentRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.repositories import events as event_rows
from paceline.db.repositories import incidents as incident_rows
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import step_records
from paceline.monitoring.words import counted
from paceline.training.reporting.failure_kinds import first_line

#: What is done without new processes for the survivors.
IN_PLACE = frozenset({"closed_up", "fell_back"})


@dataclass(frozen=True)
class IncidentContext:
    """One incident with the facts that its generations and its successor add."""

    row: IncidentRow
    before: GenerationRow | None
    after: GenerationRow | None
    overtaken_at: datetime | None
    survivors: tuple[int, ...]
    kept_at: datetime | None  # the newest step that is kept was finished, or work began
    recorded: int  # the newest step that the lost generation is on record with: heartbeats may not have come so far
    resumed_step: int | None  # from which the next generation went on, -1 for a script whose steps begin with 0; None: not known
    is_script: bool
    now: datetime

    @property
    def first_step_at(self) -> datetime | None:
        return self.row.first_step_at or (self.after.first_step_at if self.after else None)

    @property
    def over_at(self) -> datetime | None:
        return self.first_step_at or self._runs_again_at or self.overtaken_at or self.row.closed_at

    @property
    def _runs_again_at(self) -> datetime | None:
        """The time when the ranks of a script run again, which is all that is known of one that reports no steps."""
        return self.row.agreed_at if self.is_script else None

    @property
    def outcome(self) -> Outcome:
        if self.first_step_at is not None or self._runs_again_at is not None:
            return "recovered"
        if self.overtaken_at is not None:
            return "overtaken"
        return "stopped" if self.row.closed_at is not None else "open"

    @property
    def step(self) -> int:
        return max(self.row.step, self.recorded)

    @property
    def steps_lost(self) -> int | None:
        return None if self.resumed_step is None else max(0, self.step - self.resumed_step)

    @property
    def seconds_lost(self) -> float | None:
        if self.resumed_step is None or self.is_script:
            return None
        return 0.0 if self.kept_at is None else max(0.0, (self.row.fault_at - self.kept_at).total_seconds())


async def list_incidents(control: AsyncSession, points: AsyncSession, job: JobRow, now: datetime) -> list[Incident]:
    return [describe(story) for story in await incident_contexts(control, points, job, now)]


async def incident_contexts(control: AsyncSession, points: AsyncSession, job: JobRow, now: datetime) -> list[IncidentContext]:
    """The incidents of a job, the oldest first, each with the facts that its description needs."""
    rows = await incident_rows.of_job(control, job.id)
    if not rows:
        return []
    generations = {row.generation: row for row in await job_rows.generations_of(control, job.id)}
    ranks = await job_rows.ranks(control, [(job.id, row.generation) for row in rows])
    kept = await _kept_steps(points, job.id, rows)
    is_script = job.spec.is_script
    resumed = {row.id: row.resumed_step for row in rows}
    if is_script:
        told = await step_records.recorded(points, job.id)
        newest = {generation: each.last for generation, each in told.items()}
        # a file has a step when its writer likes, and calls that are counted begin anew: neither tells where a script went on
        counts = not await event_rows.has_any(control, job.id, CURVES_FOUND, CURVES_PRINTED)
        resumed = {row.id: _script_resumed(row, generations, told if counts else {}) for row in rows}
    else:
        newest = await step_records.newest_steps(points, job.id, steps.STEP_SECONDS)
    following = [row.fault_at for row in rows[1:]]
    return [
        IncidentContext(
            row=row,
            before=generations.get(row.generation),
            after=generations.get(row.next_generation or 0),
            overtaken_at=overtaken_at,
            survivors=tuple(rank.rank for rank in ranks.get((job.id, row.generation), ()) if _survived(rank, row)),
            kept_at=kept.get(row.id),
            recorded=newest.get(row.generation, 0),
            resumed_step=resumed[row.id],
            is_script=is_script,
            now=now,
        )
        for row, overtaken_at in zip(rows, [*following, None], strict=True)
    ]


def _script_resumed(
    row: IncidentRow, generations: Mapping[int, GenerationRow], told: Mapping[int, step_records.GenerationSteps]
) -> int | None:
    """The step from which a script went on: the one that it said it loaded, as `paceline.Trainer` does, or by the first step that it reported
    afterwards. None where the generation before did not report each of its steps: the first report is then not the first step."""
    before, after = generations.get(row.generation), generations.get(row.next_generation or 0)
    if after is not None and after.start_step:
        return after.start_step
    if before is None or after is None or before.first_step is None or after.first_step is None:
        return None
    lost, resumed = told.get(before.generation), after.first_step - 1
    if lost is None or not lost.has_each_from(before.first_step) or resumed > lost.last:
        return None
    return resumed


def _survived(rank: RankRow, row: IncidentRow) -> bool:
    return row.action in IN_PLACE and rank.state is RankState.MOVED


async def _kept_steps(points: AsyncSession, job_id: str, rows: Sequence[IncidentRow]) -> dict[str, datetime]:
    """The time when the step that each incident went back to was finished, by the clock of the rank that reported it.

    Where the lost generation itself had begun from that step, or never got as far, nothing before its own first step counts as lost."""
    kept = {row.resumed_step for row in rows if row.resumed_step is not None}
    reported_steps = steps.parse(await step_records.at_steps(points, job_id, sorted(kept | {step + 1 for step in kept})))
    found = {row.id: _kept(row, reported_steps) for row in rows}
    return {id: moment for id, moment in found.items() if moment is not None}


def _kept(row: IncidentRow, reported_steps: Sequence[StepRecord]) -> datetime | None:
    step = row.resumed_step
    if step is None:
        return None
    own = [record for record in reported_steps if record.generation == row.generation and record.own]
    times = [record.time for record in own if record.step == step]
    times += [record.began for record in own if record.step == step + 1]
    return datetime.fromtimestamp(min(times), UTC) if times else None


def describe(story: IncidentContext) -> Incident:
    row, over_at = story.row, story.over_at
    culprit = Failure.model_validate(row.culprit) if row.culprit else None
    age = max(0.0, ((over_at or story.now) - row.fault_at).total_seconds())
    return Incident(
        id=row.id,
        job_id=row.job_id,
        generation=row.generation,
        next_generation=row.next_generation,
        action=cast("RecoveryAction", row.action),
        outcome=story.outcome,
        cause=row.cause,
        what=what_happened(culprit) if culprit else row.why,
        why=row.why,
        done=done(story),
        culprit=culprit,
        survivors=list(story.survivors),
        old_size=story.before.world_size if story.before else 0,
        new_size=story.after.world_size if story.after else None,
        step=story.step,
        resumed_step=None if story.resumed_step is None else max(0, story.resumed_step),
        steps_lost=story.steps_lost,
        seconds_lost=story.seconds_lost,
        fault_at=row.fault_at,
        first_step_at=story.first_step_at,
        over_at=over_at,
        outage_seconds=None if over_at is None else age,
        age_seconds=age,
        phases=phases_of(story),
    )


def phases_of(story: IncidentContext) -> list[Phase]:
    row = story.row
    ends: list[tuple[PhaseName, datetime | None]] = [("detect", row.detected_at), ("decide", row.decided_at)]
    if row.action in IN_PLACE:
        ends.append(("fence", row.entered_at))
    else:
        ends += [("fence", row.fenced_at), ("place", row.entered_at)]
    if row.action != "gave_up":
        ends += [("rebuild", row.joined_at), ("transfer", row.agreed_at), ("first_step", story.first_step_at)]
    found = phases(row.fault_at, ends, max(story.over_at or story.now, row.fault_at), is_open=story.over_at is None)
    return [Phase(name=phase.name, seconds=phase.seconds, under_way=phase.under_way) for phase in found]


# --- in words


def what_happened(failure: Failure) -> str:
    """The fault in words: "rank 1 on node-b raised ValueError: bad label (loss in train.py:22)"."""
    how = how_it_ended(failure)
    repeated = failure.message in ("", how) or f"was {failure.message}" == how
    said = "" if repeated else f": {first_line(failure.message).removeprefix(f'{how}: ')}"
    return f"rank {failure.rank} on {failure.node_name} {how}{said}{f' ({failure.where})' if failure.where else ''}"


def how_it_ended(failure: Failure) -> str:
    if failure.kind in FAILURE_WORDS:
        return FAILURE_WORDS[failure.kind]
    if failure.signal:
        return f"was killed by {failure.signal}"
    if failure.message in TOO_EARLY:
        return "left too early"
    if failure.exception:
        return f"raised {failure.exception.rpartition('.')[2]}"
    return "ended" if failure.exit_code is None else f"exited with code {failure.exit_code}"


def done(story: IncidentContext) -> str:
    """The recovery in words: "ranks 0, 2 continued as generation 2 from step 8; no step was lost"."""
    row = story.row
    if row.action == "gave_up":
        return "the job was stopped"
    generation = f" as generation {row.next_generation}" if row.next_generation else ""
    from_step = "" if story.resumed_step is None else f" from step {max(0, story.resumed_step)}"
    if row.action in IN_PLACE:
        one = len(story.survivors) == 1
        who = f"{'rank' if one else 'ranks'} {listed(story.survivors)}" if story.survivors else "the survivors"
        kept = "kept its process" if one else "kept their processes"
        how = "continued" if row.action == "closed_up" else f"{kept} and fell back to a checkpoint"
        return f"{who} {how}{generation}{from_step}{_cost(story)}"
    if row.next_generation is None:
        return "the job restarts once its old ranks have ended and slots are free"
    return f"all ranks restarted{generation}{from_step}{_cost(story)}"


def _cost(story: IncidentContext) -> str:
    lost = story.steps_lost
    if lost is None:
        return "; the number of repeated steps is unknown: the script does not report each step" if story.is_script else ""
    return "; no step was lost" if lost == 0 else f"; {counted(lost, 'step')} had to be repeated"
