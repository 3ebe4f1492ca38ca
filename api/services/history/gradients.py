"""Gradients that ranks have recorded, step by step: of each step those of the newest generation that has done it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from operator import add

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.schemas.gradients import (
    GradientRecordState,
    GradientStep,
    JobGradients,
    ParameterGradients,
    RankGradient,
    RequestedGradients,
    StepGradients,
)
from paceline.api.services.artifacts import stored_artifacts
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.repositories import artifacts as rows
from paceline.monitoring.gradient_records import DamagedRecordError, ParameterRecord, RecordedGradients, decode, decompress

#: How many ranks' records are read for one answer, and how many bytes of them, before they were compressed.
MOST_RANKS, MOST_BYTES = 64, 64 << 20
#: What a parameter counts as at least: with the bins that a spec asks for by default its text is a bit longer.
PARAMETER_BYTES = 320


async def of_job(session: AsyncSession, job_id: str, request: RequestedGradients | None) -> JobGradients:
    """Return the steps of which there are records. `request`: the newest one for a further step."""
    newest: dict[int, GradientStep] = {}
    for each in await rows.recorded_steps(session, job_id):  # later generations come later
        arriving = each.files - each.stored - each.failed
        newest[each.step] = GradientStep(
            step=each.step, generation=each.generation, ready=each.stored, arriving=arriving, failed=each.failed
        )
    return JobGradients(job_id=job_id, steps=sorted(newest.values(), key=lambda found: found.step), request=request)


async def of_step(services: Services, job_id: str, step: int, ranks: Collection[int] | None) -> StepGradients:
    """Return what `ranks`, or all, have recorded of a step. Raises a problem where there is none, and for too many ranks."""
    async with services.control.read() as session:
        files = await rows.files_of_step(session, job_id, step)
    if not files:
        raise ProblemError("not_found", f"no gradients of step {step} are recorded; ask for the job's gradients to see which steps are")
    generation = max(file.generation for file in files)
    files = [file for file in files if file.generation == generation]
    snapshots = {file.rank: file.id for file in files if file.kind == "snapshot" and file.stored_at is not None}
    found = [file for file in files if file.kind == "gradients" and (ranks is None or file.rank in ranks)]
    # A rank that could not do what was asked for may have recorded what the spec chooses.
    records = list({file.rank: file for file in sorted(found, key=lambda file: (file.rank, file.error is None))}.values())
    chosen = [file for file in records if file.stored_at is not None]
    if len(chosen) > MOST_RANKS:
        raise ProblemError(
            "invalid_parameter",
            f"{len(chosen)} ranks have recorded step {step}; at most {MOST_RANKS} are read at once: name some with rank=0,1",
        )
    async with services.unpacking.turn():
        whole, damaged = await _read(services, chosen)
        return StepGradients(
            job_id=job_id,
            step=step,
            generation=generation,
            ranks=[_describe(file, damaged.get(file.rank), snapshots) for file in records],
            edges=list(next((record.edges for record in whole.values()), ())),
            parameters=await asyncio.to_thread(by_parameter, whole),
        )


async def _read(services: Services, files: Collection[ArtifactRow]) -> tuple[dict[int, RecordedGradients], dict[int, str]]:
    """Return the records by rank, and why others cannot be read. Further records are left out where they are too large together with those
    before: few MB may unfold to gigabytes."""
    whole, damaged, room = dict[int, RecordedGradients](), dict[int, str](), MOST_BYTES
    for file in files:
        record = None
        if room > 0:
            content = b"".join([chunk async for chunk in stored_artifacts.contents(services, file.id)])
            try:
                record, taken = await asyncio.to_thread(_unfold, content, room if whole else None)
            except DamagedRecordError as error:
                damaged[file.rank] = f"the record cannot be read: {error}"
                continue
        if record is None:
            damaged[file.rank] = f"it is too large to be read along with those of other ranks; ask for rank {file.rank} alone"
        else:
            whole[file.rank], room = record, room - taken
    return whole, damaged


def _unfold(content: bytes, room: int | None) -> tuple[RecordedGradients | None, int]:
    """A record, and the bytes of `room` that it takes; None where it has more. `room` None: it is the first one, and read in any case."""
    text = decompress(content)
    if room is not None and len(text) > room:
        return None, 0
    record = decode(text)
    taken = max(len(text), PARAMETER_BYTES * (len(record.parameters) + len(record.unused)))
    return (None, 0) if room is not None and taken > room else (record, taken)


def _describe(file: ArtifactRow, damage: str | None, snapshots: Mapping[int, str]) -> GradientRecordState:
    error = file.error or damage
    state = stored_artifacts.state_of(file)
    return GradientRecordState(rank=file.rank, state="failed" if error else state, error=error, snapshot_id=snapshots.get(file.rank))


def by_parameter(records: Mapping[int, RecordedGradients]) -> list[ParameterGradients]:
    """Return the records of ranks as one list of parameters, in the order in which ranks have them."""
    found: dict[str, dict[int, ParameterRecord]] = {}
    unused: dict[str, list[int]] = {}
    for rank, record in sorted(records.items()):
        for each in record.parameters:
            found.setdefault(each.name, {})[rank] = each
        for name in record.unused:
            unused.setdefault(name, []).append(rank)
    return [_parameter(name, found.get(name, {}), unused.get(name, [])) for name in dict.fromkeys([*found, *unused])]


def _parameter(name: str, records: Mapping[int, ParameterRecord], unused: list[int]) -> ParameterGradients:
    return ParameterGradients(
        name=name,
        sharded=any(each.sharded for each in records.values()),
        histogram=_sum(each.histogram for each in records.values()),
        ranks=[
            RankGradient(
                rank=rank, shape=list(each.shape), elements=each.elements, norm=each.norm, zeros=each.zeros, nans=each.nans, infs=each.infs
            )
            for rank, each in records.items()
        ],
        unused=unused,
    )


def _sum(histograms: Iterable[Iterable[int]]) -> list[int]:
    total: list[int] = []
    for histogram in histograms:
        total = list(map(add, total, histogram)) if total else list(histogram)
    return total
