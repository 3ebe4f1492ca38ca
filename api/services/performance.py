"""A job's speed, over the newest steps of its newest generation, and MFU with whatever it was computed from."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from api.schemas.performance import PeakMemory, Performance, StepTime, Utilization
from api.services import steps
from api.services.steps import StepRecord
from db.models.jobs import JobRow, RankRow
from db.models.nodes import NodeRow
from db.repositories import jobs as job_rows
from db.repositories import step_records
from monitoring.devices import Peak, model_flops_utilization, peak_of
from monitoring.points import STEP_PARTS
from training.flops import ModelFlops, model_flops
from training.spec import JobSpec

#: Steps that the means are of.
NEWEST_STEPS = 50
EXPOSED = "communication_seconds"
PEAK_MEMORY = "peak_memory_bytes"
CPU = "cpu"


async def of_job(control: AsyncSession, points: AsyncSession, job: JobRow) -> Performance:
    spec = JobSpec.model_validate(job.spec)
    gang = [(rank, node) for rank, node in await job_rows.ranks_with_nodes(control, job.id, job.generation) if not rank.parked]
    # An evaluation is a record of its own at its step, so there may be two to a step.
    rows = await step_records.newest(points, job.id, job.generation, 2 * NEWEST_STEPS)
    told = [record for record in steps.parse(rows) if record.own][:NEWEST_STEPS]
    memory = await step_records.highest(points, job.id, job.generation, PEAK_MEMORY)
    rate = mean_rate(told, "samples_per_second")
    parts = parts_of(told)
    return Performance(
        job_id=job.id,
        generation=job.generation,
        ranks=len(gang),
        steps=len(told),
        step_seconds=sum(record.seconds for record in told) / len(told) if told else None,
        samples_per_second=rate,
        tokens_per_second=mean_rate(told, "tokens_per_second"),
        parts=parts,
        exposed_communication=next((part.share for part in parts if part.name == EXPOSED), None),
        mfu=utilization(spec, [device_of(rank, node) for rank, node in gang], rate),
        peak_memory=[PeakMemory(rank=rank, bytes=value) for rank, value in memory.items()],
    )


def mean_rate(told: Sequence[StepRecord], name: str) -> float | None:
    """What was done in all of these steps over the time that they took."""
    known = [record for record in told if name in record.values]
    seconds = sum(record.seconds for record in known)
    return sum(float(record.values[name]) * record.seconds for record in known) / seconds if seconds > 0 else None


def parts_of(told: Sequence[StepRecord]) -> list[StepTime]:
    known = [record for record in told if all(part in record.values for part in STEP_PARTS)]
    sums = {part: sum(float(record.values[part]) for record in known) for part in STEP_PARTS}
    total = sum(sums.values())
    if total <= 0:
        return []
    return [StepTime(name=part, seconds=seconds / len(known), share=seconds / total) for part, seconds in sums.items()]


def device_of(rank: RankRow, node: NodeRow) -> str:
    """As its driver names it."""
    if node.device != "cuda":
        return CPU
    gpus = (node.inventory or {}).get("gpus", [])
    return next((str(gpu["name"]) for gpu in gpus if gpu["index"] == rank.slot), "an unknown GPU")


def utilization(spec: JobSpec, devices: Sequence[str], samples_per_second: float | None) -> Utilization:
    flops, names = model_flops(spec), list(dict.fromkeys(devices))
    peaks = [peak_of(device, spec.precision) for device in devices]
    known = [peak for peak in peaks if peak is not None]
    total = sum(peak.flops for peak in known) if known and len(known) == len(peaks) else None
    value = None
    if flops is not None and total is not None and samples_per_second is not None:
        value = model_flops_utilization(samples_per_second, flops.per_sample, total)
    return Utilization(
        value=value,
        text=_explain(spec, flops, names, peaks, value),
        formula=flops.formula if flops else None,
        flops_per_sample=flops.per_sample if flops else None,
        peak_flops=total,
        devices=names,
        sources=list(dict.fromkeys(peak.source for peak in known)),
    )


def _explain(spec: JobSpec, flops: ModelFlops | None, names: Sequence[str], peaks: Sequence[Peak | None], value: float | None) -> str:
    if flops is None:
        return f"n/a: what {'a script' if spec.script else 'a model of your own'} computes is not known"
    if not names:
        return "n/a: it has no ranks yet"
    if CPU in names:
        return "n/a: nobody states the peak of a CPU"
    if None in peaks:
        unknown = next(name for name in names if peak_of(name, spec.precision) is None)
        return f"n/a: the peak of {unknown} in {spec.precision} is not known"
    if value is None:
        return "n/a: no step is done yet"
    return f"{value:.1%} of {', '.join(names)} in {spec.precision}"
