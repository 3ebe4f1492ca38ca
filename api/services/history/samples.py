"""The audit of samples: each committed step of a job, with the samples that its rank 0 says it used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import paging
from paceline.api.schemas.samples import EpochUse, SampleAudit, SampleRange
from paceline.api.services.history import steps
from paceline.api.services.history.steps import CountedStep
from paceline.cluster.history.samples import Audit, SampleSpan, SampleUse, audit, extend
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.monitoring.words import counted, plural

FIRST_SAMPLE, SAMPLES, EPOCH_SAMPLES = "first_sample", "samples", "epoch_samples"
MAX_PLACE = 1 << 53


@dataclass
class SampleUses:
    """The uses of samples by the steps of a job; an accumulator."""

    ranges: list[SampleSpan] = field(default_factory=list)
    discarded: int = 0
    impossible: int = 0  # steps that told places that cannot be: no trainer of ours has said that
    epoch_samples: int | None = None
    findings: list[str] = field(default_factory=list)

    def add(self, each: CountedStep) -> None:
        self.discarded += each.discarded
        if FIRST_SAMPLE not in each.values or SAMPLES not in each.values:
            return
        first, count = place_in(each.values[FIRST_SAMPLE]), place_in(each.values[SAMPLES])
        if first is None or not count:
            self.impossible += 1
            return
        extend(self.ranges, SampleUse(each.generation, each.step, first, count))
        if each.told > 1:
            self.findings.append(f"step {each.step} was told {each.told} times by generation {each.generation}")
        if EPOCH_SAMPLES in each.values:
            self.epoch_samples = place_in(each.values[EPOCH_SAMPLES]) or self.epoch_samples


async def of_job(
    control: AsyncSession, points: AsyncSession, job: JobRow, *, step: int | None, cursor: str | None, limit: int
) -> SampleAudit:
    """The audit of a job. `step`: only that step's range is listed; the audit is of all of them nevertheless."""
    after = paging.decode(cursor, int)
    await steps.require_points(points, job.id)
    lines = await steps.lines_of(points, job.id, await job_rows.generations_of(control, job.id))
    uses, chosen = SampleUses(), SampleUses()
    async for each in steps.counted_steps(points, job.id, lines):
        uses.add(each)
        if each.step == step:
            chosen.add(each)
    result = audit(uses.ranges, begins_at=None if job.restored_from else 0, epoch_samples=uses.epoch_samples)
    impossible = [f"{uses.impossible} steps told places that cannot be: they are left out"] if uses.impossible else []
    findings = [*uses.findings, *impossible, *result.findings]
    listed = uses.ranges if step is None else chosen.ranges
    rest = [each for each in listed if after is None or each.first_step > int(after[0])]
    page = paging.page_of(rest[: limit + 1], limit, lambda each: _range(each, uses.epoch_samples), lambda each: (each.last_step,))
    return SampleAudit(
        job_id=job.id,
        recorded=bool(uses.ranges),
        exactly_once=not findings if uses.ranges else None,
        text=_verdict(job, result, findings, uses.discarded),
        findings=findings,
        first_step=uses.ranges[0].first_step if uses.ranges else None,
        last_step=uses.ranges[-1].last_step if uses.ranges else None,
        steps=result.steps,
        samples=result.samples,
        duplicates=result.duplicates,
        missing=result.missing,
        discarded_steps=uses.discarded,
        epochs=_epochs(result, uses.epoch_samples),
        ranges=page.items,
        next_cursor=page.next_cursor,
    )


def place_in(value: float | str) -> int | None:
    """A place in the line of samples, or a number of them; None: the value can be neither."""
    number = float(value)
    return int(number) if 0 <= number < MAX_PLACE and number.is_integer() else None


def _range(each: SampleSpan, size: int | None) -> SampleRange:
    return SampleRange(
        generation=each.generation,
        first_step=each.first_step,
        last_step=each.last_step,
        first_sample=each.first,
        samples=each.count,
        epoch=each.first // size if size else None,
    )


def _epochs(result: Audit, size: int | None) -> list[EpochUse]:
    return [
        EpochUse(epoch=each.epoch, samples=size, used=each.used, duplicates=each.duplicates, complete=each.used == size)
        for each in (result.epochs if size else ())
        if size
    ]


def _verdict(job: JobRow, result: Audit, findings: Sequence[str], discarded: int) -> str:
    if not result.ranges:
        script = job.spec.is_script
        return "a script does not tell which samples it uses" if script else "no step has told which samples it used"
    again = f" ({counted(discarded, 'replayed step')} excluded)" if discarded else ""
    if findings:
        more = f" (and {plural(len(findings) - 1, 'more finding')})" if len(findings) > 1 else ""
        return f"not exactly once: {findings[0]}{more}{again}"
    return f"exactly once: {counted(result.steps, 'step')} used {counted(result.samples, 'sample')}: no duplicates, none skipped{again}"
