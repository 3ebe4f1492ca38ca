"""A job's speed, over the newest steps of its newest generation, and MFU with the values it was computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.performance import AxisTraffic, Bubble, PeakMemory, Performance, StepTime, Utilization
from paceline.api.services.history import steps
from paceline.api.services.history.steps import StepRecord
from paceline.api.services.specs.node_facets import card_of
from paceline.api.services.specs.stored_specs import required_spec_of
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import step_records
from paceline.monitoring.devices import Peak, model_flops_utilization, peak_of
from paceline.monitoring.points import SENT_METRICS, STEP_PARTS
from paceline.training.planning.estimates import setup_of
from paceline.training.planning.flops import ModelFlops, model_flops
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import EntrypointWorkload, ScriptWorkload

#: Steps that the means are of.
NEWEST_STEPS = 50
EXPOSED = "communication_seconds"
OVERLAPPED = "overlapped_communication_seconds"
PEAK_MEMORY = "peak_memory_bytes"
CPU = "cpu"


async def of_job(control: AsyncSession, points: AsyncSession, job: JobRow) -> Performance:
    spec = required_spec_of(job)
    gang = [(rank, node) for rank, node in await job_rows.ranks_with_nodes(control, job.id, job.generation) if not rank.parked]
    records = await newest_steps(points, job)
    timed_rank = spec.parallelism.servers if spec.parallelism.has_servers else 0  # a server only waits
    timed = records if timed_rank == 0 else await newest_steps(points, job, timed_rank)
    memory = await step_records.highest(points, job.id, job.generation, PEAK_MEMORY)
    devices = [device_of(rank, node) for rank, node in gang]
    sent = await step_records.means(points, job.id, job.generation, SENT_METRICS.values())
    step_seconds = sum(record.seconds for record in records) / len(records) if records else None
    rate = mean_rate(records, "samples_per_second")
    parts = parts_of(timed)
    return Performance(
        job_id=job.id,
        generation=job.generation,
        ranks=len(gang),
        steps=len(records),
        step_seconds=step_seconds,
        samples_per_second=rate,
        tokens_per_second=mean_rate(records, "tokens_per_second"),
        timed_rank=timed_rank,
        parts=parts,
        exposed_communication=next((part.share for part in parts if part.name == EXPOSED), None),
        overlapped_communication=share_of(timed, OVERLAPPED),
        traffic=traffic_of(sent, step_seconds),
        uncounted=["tensor"] if spec.parallelism.tensor > 1 and CPU not in devices else [],
        bubble=bubble_of(spec, mean_rate(records, "pipeline_bubble")),
        mfu=utilization(spec, devices, rate, reported_flops(records), mean_rate(records, "mfu")),
        peak_memory=[PeakMemory(rank=rank, bytes=value) for rank, value in memory.items()],
    )


async def newest_steps(points: AsyncSession, job: JobRow, rank: int = 0) -> list[StepRecord]:
    """The newest steps of its generation that a rank has done itself, the newest first."""
    # An evaluation is a record of its own at its step, so there may be two to a step.
    rows = await step_records.newest(points, job.id, job.generation, 2 * NEWEST_STEPS, rank=rank)
    return [record for record in steps.parse(rows) if record.own][:NEWEST_STEPS]


def mean_rate(records: Sequence[StepRecord], name: str) -> float | None:
    """The amount of work in all of these steps over the time that they took."""
    known = [record for record in records if name in record.values]
    return per_second([float(record.values[name]) * record.seconds for record in known], known)


def share_of(records: Sequence[StepRecord], name: str) -> float | None:
    """The share of this part in the time of these steps."""
    known = [record for record in records if name in record.values]
    return per_second([float(record.values[name]) for record in known], known)


def per_second(amounts: Sequence[float], records: Sequence[StepRecord]) -> float | None:
    seconds = sum(record.seconds for record in records)
    return sum(amounts) / seconds if seconds > 0 else None


def traffic_of(sent: Mapping[str, Mapping[int, float]], step_seconds: float | None) -> list[AxisTraffic]:
    """The traffic along each axis. `sent`: by metric and rank, bytes of a step."""
    by_axis = {axis: sent[name] for axis, name in SENT_METRICS.items() if name in sent}
    most = {axis: max(by_rank.items(), key=lambda each: each[1]) for axis, by_rank in by_axis.items()}
    return [
        AxisTraffic(axis=axis, rank=rank, bytes_per_step=size, bytes_per_second=size / step_seconds if step_seconds else None)
        for axis, (rank, size) in most.items()
    ]


def bubble_of(spec: JobSpec, measured: float | None) -> Bubble | None:
    if spec.parallelism.pipeline == 1:
        return None
    schedule = setup_of(spec).schedule
    return Bubble(measured=measured, formula=schedule.bubble, text=f"{schedule.name}, {schedule.words}")


def parts_of(records: Sequence[StepRecord]) -> list[StepTime]:
    """The mean parts of these steps; without communication where a rank does not know it, and tells the others alone."""
    known = [record for record in records if all(part in record.values for part in STEP_PARTS if part != EXPOSED)]
    told = [part for part in STEP_PARTS if all(part in record.values for record in known)]
    sums = {part: sum(float(record.values[part]) for record in known) for part in told}
    total = sum(sums.values())
    if total <= 0:
        return []
    return [StepTime(name=part, seconds=seconds / len(known), share=seconds / total) for part, seconds in sums.items()]


def device_of(rank: RankRow, node: NodeRow) -> str:
    """The device of a rank, as its driver names it: the card that it held, whatever its agent offers by now."""
    card = card_of(node, rank.slot) if rank.card is None else rank.card
    if card is None:
        return CPU
    gpus = (node.inventory or {}).get("gpus", [])
    return next((str(gpu["name"]) for gpu in gpus if gpu["index"] == card), "an unknown GPU")


def reported_flops(records: Sequence[StepRecord]) -> float | None:
    """The FLOPs of a sample, as the rank that has built the model reported them."""
    return next((float(record.values["flops_per_sample"]) for record in records if "flops_per_sample" in record.values), None)


def flops_of(spec: JobSpec, records: float | None) -> ModelFlops | None:
    if records is None:
        return model_flops(spec)
    return ModelFlops(records, "as its task says" if spec.entrypoint else "as torch counts it on the built model, forward and backward")


def utilization(
    spec: JobSpec,
    devices: Sequence[str],
    samples_per_second: float | None,
    records: float | None = None,
    reported: float | None = None,
) -> Utilization:
    """The MFU on these devices or, where the peak of one is not known by now, as the ranks `reported` it."""
    flops, names = flops_of(spec, records), list(dict.fromkeys(devices))
    peaks = [peak_of(device, spec.precision) for device in devices]
    known = [peak for peak in peaks if peak is not None]
    total = sum(peak.flops for peak in known) if known and len(known) == len(peaks) else None
    value = None if flops is None or total is not None else reported
    if flops is not None and total is not None and samples_per_second is not None:
        value = model_flops_utilization(samples_per_second, flops.per_sample, total)
    return Utilization(
        value=value,
        text=_explain(spec, flops, names, peaks, value),
        formula=flops.formula if flops else None,
        flops_per_sample=flops.per_sample if flops else None,
        flops_per_second=flops.per_sample * samples_per_second if flops and samples_per_second is not None else None,
        peak_flops=total,
        devices=names,
        sources=list(dict.fromkeys(peak.source for peak in known)),
    )


def unknown_arithmetic(spec: JobSpec) -> str:
    match spec.workload:
        case ScriptWorkload():
            return "what a script computes is not known"
        case EntrypointWorkload():
            return "what a model of your own computes is not known; give Task.flops_per_sample"
    return "what this model computes is counted on its ranks: no step is done yet, or their output says why not"


def _explain(spec: JobSpec, flops: ModelFlops | None, names: Sequence[str], peaks: Sequence[Peak | None], value: float | None) -> str:
    if flops is None:
        return f"not available: {unknown_arithmetic(spec)}"
    if value is not None:
        known = bool(peaks) and None not in peaks
        return f"{value:.1%} of {', '.join(names) if known else 'the GPUs that it ran on, as its ranks reported it,'} in {spec.precision}"
    if not names:
        return "not available: the job has no ranks yet"
    if CPU in names:
        return "not available: no peak FLOP/s is published for this CPU"
    if None in peaks:
        unknown = next(name for name in names if peak_of(name, spec.precision) is None)
        return f"not available: no peak FLOP/s is known for {unknown} in {spec.precision}"
    return "not available: no step is done yet"
