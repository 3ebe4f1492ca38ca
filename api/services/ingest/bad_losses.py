"""Losses that are NaN, infinite or spikes: an event, and the notice of the newest one on the job's page.

A trainer of ours judges its steps itself and reports them (`rank_events`). For a script the coordinator judges the points (`progress`).
Pure except for `record_bad_loss`, which writes into its caller's transaction and returns the changes of the job's `progress`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import bus
from paceline.api.core.context import nudge_after_commit
from paceline.api.schemas.common import Actor
from paceline.api.schemas.jobs import BadLoss
from paceline.api.services.lifecycle import events
from paceline.api.services.specs.script_stops import BAD_LOSS, stop_stands
from paceline.api.services.specs.stored_specs import stored_part
from paceline.db.models.jobs import JobRow
from paceline.monitoring.loss_watch import BadLossKind
from paceline.monitoring.sinks import on_the_wire
from paceline.training.link import Count
from paceline.training.schema.bad_loss import MOST_MICRO_BATCHES, MOST_SAMPLE_IDS, BadLossPolicy, what_is_bad, what_is_done

#: How many steps long the newest bad loss is shown, unless the job ends meanwhile.
SHOWN_STEPS = 500
#: How many of a bad step's samples are shown; the event has more.
SHOWN_SAMPLES = 8
_TYPES: Mapping[BadLossKind, str] = {"not_finite": "job.loss_not_finite", "spike": "job.loss_spike"}


class BadLossReport(msgspec.Struct, frozen=True):
    """One bad loss, as the trainer reports it."""

    step: Count
    what: BadLossKind
    act: BadLossPolicy
    loss: float
    gradient_norm: float | None = None
    limit: float | None = None
    again: bool = False
    micro_batches: Annotated[list[Count], msgspec.Meta(max_length=MOST_MICRO_BATCHES)] = []
    sample_ids: Annotated[list[Count], msgspec.Meta(max_length=MOST_SAMPLE_IDS)] = []
    samples: Count = 0

    @property
    def in_words(self) -> tuple[str, str]:
        """(the bad value, what is done about it)."""
        return what_is_bad(self.what, self.step, self.loss, self.limit), what_is_done(self.what, self.act, again=self.again)


@dataclass(frozen=True)
class LossReporter:
    """The process that has judged the loss."""

    actor: Actor
    generation: int
    node_id: str | None = None
    has_room: bool = True  # in the job's history, for the event


async def record_bad_loss(
    session: AsyncSession, job: JobRow, progress: Mapping[str, Any], told: BadLossReport, reporter: LossReporter, now: datetime
) -> dict[str, Any]:
    """Record a bad loss as an event, where the history has room. Returns the changes of the job's `progress`: none where one that stops the job
    stands there, which the scheduler may not have seen yet."""
    what, done = told.in_words
    facts = {name: on_the_wire(value) if isinstance(value, float) else value for name, value in msgspec.to_builtins(told).items()}
    if reporter.has_room:
        await events.record(
            session,
            type=_TYPES[told.what],
            actor=reporter.actor,
            cause="loss",
            message=f"{what}: {done}",
            job_id=job.id,
            node_id=reporter.node_id,
            generation=reporter.generation,
            data=facts,
            time=now,
        )
    if told.act == "stop":
        nudge_after_commit(session, bus.SCHEDULER)
    if stop_stands(progress, reporter.generation):
        return {}
    shown = {"step": told.step, "kind": told.what, "act": told.act, "what": what, "done": done, "samples": told.samples}
    return {BAD_LOSS: shown | {"sample_ids": told.sample_ids[:SHOWN_SAMPLES], "generation": reporter.generation}}


def policy_of(job: JobRow, kind: BadLossKind) -> BadLossPolicy:
    """The bad-loss policy of a job as stored; `warn` for older specs, which have none."""
    given = stored_part(job, "fault_tolerance", "on_nan" if kind == "not_finite" else "on_spike")
    return given if given in ("stop", "skip_update", "roll_back") else "warn"


def shown(job: JobRow) -> BadLoss | None:
    """The newest bad loss, while it is worth a notice."""
    progress = job.progress or {}
    known = progress.get(BAD_LOSS)
    if not isinstance(known, dict) or (job.ended_at is None and progress.get("step", 0) > known["step"] + SHOWN_STEPS):
        return None
    return BadLoss.model_validate({name: value for name, value in known.items() if name != "generation"})
