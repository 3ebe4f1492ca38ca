"""One job on a terminal: the truth about a failure first, then how it stands, where its time went and what happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import formats
from cli.ledger_views import Goodput, Incident
from cli.output import fields, table
from cli.performance_views import AxisTraffic, Performance
from cli.plan_choices import chosen
from cli.views import Checkpoint, Failure, Job, view

if TYPE_CHECKING:
    from cli.client import Client  # httpx costs 100 ms: --help does without

LAST_LINES = 5
LAST_INCIDENTS = 5

Pairs = list[tuple[str, str]]


def details(client: Client, job: Job) -> str:
    goodput = view(client.get(f"/training/jobs/{job.id}/goodput"), Goodput) if job.started_at else None
    hurt = job.started_at is not None and (job.failure is not None or len(job.generations) > 1)
    incidents = view(client.get(f"/training/jobs/{job.id}/incidents"), list[Incident]) if hurt else []
    performance = view(client.get(f"/training/jobs/{job.id}/performance"), Performance) if job.started_at else None
    newest = newest_checkpoint(client, job.id) if job.progress.last_checkpoint_step is not None else None
    blocks = [fields([*_headline(job), *_standing(job), *_checkpoint(newest), *_performance(performance), *_goodput(goodput)]), ranks(job)]
    if incidents:
        blocks.append(incidents_table(incidents[-LAST_INCIDENTS:]))
    return "\n\n".join(blocks)


def _headline(job: Job) -> Pairs:
    reason = f", reason: {job.end_reason}" if job.end_reason else ""
    state = [("job", f"{job.name} ({job.id})"), ("state", f"{job.state}, wanted: {job.desired}{reason}")]
    return [*state, *_failure(job.failure), *_waiting(job), *_deleted(job)]


def _deleted(job: Job) -> Pairs:
    """Why its curves and log are empty."""
    if job.data_removal is None:
        return []
    words = "was deleted" if job.data_removal.state == "removed" else "is being deleted"
    return [("data", f"{words}: {job.data_removal.asked_by} asked for it")]


def _failure(failure: Failure | None) -> Pairs:
    """The rank that caused it, with its last lines; then the other ranks, in one line each: those of the same failure, those of one of their
    own, and those that it dragged down."""
    if failure is None:
        return []
    lines = [("failure", f"{failure.what}: rank {failure.rank} on {failure.node_name}: {failure.said}")]
    lines += [("", line) for line in failure.last_lines[-LAST_LINES:]]
    same, dragged = (_listed(failure, share) for share in ("same", "victim"))
    lines += [("", f"the same on rank {same}")] if same else []
    lines += [
        ("", f"also {other.what}: rank {other.rank} on {other.node_name}: {other.said}")
        for other in failure.victims
        if other.share == "also"
    ]
    return [*lines, ("", f"it dragged down rank {dragged}")] if dragged else lines


def _listed(failure: Failure, share: str) -> str:
    return ", ".join(f"{other.rank} on {other.node_name}" for other in failure.victims if other.share == share)


def _waiting(job: Job) -> Pairs:
    if job.pending is None:
        return []
    parts = [
        ("lacks" if job.state == "running" else "waiting", job.pending.text),
        ("would fit", job.pending.nearest_fit),
        ("next step", job.pending.next_step),
    ]
    return [(name, text) for name, text in parts if text]


def _standing(job: Job) -> Pairs:
    progress = job.progress
    loss = formats.number(progress.loss)
    if progress.not_finite_step is not None:
        loss += f": not finite since step {progress.not_finite_step}; the last checkpoint from before it is kept"
    rates = f"{formats.quantity(progress.tokens_per_second)} tokens/s, {formats.quantity(progress.samples_per_second)} samples/s"
    return [
        ("step", formats.steps(progress.step, progress.total_steps)),
        ("loss", loss),
        ("throughput", rates),
        ("world", f"{world(job)}, {job.strategy}, generation {job.generation}, {job.restarts} restarts"),
        *chosen(job.choice),
        ("first step", "none yet" if job.seconds_to_first_step is None else f"{job.seconds_to_first_step:.2f} s after submission"),
    ]


def newest_checkpoint(client: Client, job_id: str) -> Checkpoint | None:
    found = view(client.pages(f"/checkpoints/jobs/{job_id}", limit=1), list[Checkpoint])
    return found[0] if found else None


def _checkpoint(newest: Checkpoint | None) -> Pairs:
    """With what it cost the steps around it."""
    if newest is None:
        return [("checkpoint", "none yet")]
    if newest.stall_seconds is None:
        return [("checkpoint", f"step {newest.step}")]
    slower = f", steps meanwhile {formats.times(newest.slowdown)}" if newest.slowdown is not None else ""
    waited, written = formats.seconds(newest.stall_seconds), formats.seconds(newest.write_seconds)
    return [("checkpoint", f"step {newest.step}: training waited {waited}, written in {written}{slower}")]


def _performance(performance: Performance | None) -> Pairs:
    """MFU with what it was computed from, what a step waits for, and the rank that took the most memory."""
    if performance is None or performance.steps == 0:
        return []
    mfu = performance.mfu
    basis = f"{mfu.formula}; peak {formats.quantity(mfu.peak_flops)}FLOP/s, {', '.join(mfu.sources)}" if mfu.peak_flops else mfu.formula
    pairs = [("MFU", mfu.text), *([("", basis)] if basis else [])]
    if mfu.flops_per_second is not None:
        pairs.append(("model FLOP/s", f"{formats.quantity(mfu.flops_per_second, 'FLOP/s')}, forward and backward, on all ranks"))
    if performance.exposed_communication is not None and performance.step_seconds is not None:
        exposed = f"{performance.exposed_communication:.1%} of a step of {performance.step_seconds:.3f} s waits for other ranks"
        beside = performance.overlapped_communication
        pairs.append(("exposed comm.", exposed if beside is None else f"{exposed}; {beside:.1%} more passes while rank 0 computes"))
    pairs += [("sent" if index == 0 else "", sent_along(each)) for index, each in enumerate(performance.traffic)]
    if performance.bubble is not None and performance.bubble.measured is not None:
        bubble = performance.bubble
        pairs.append(("bubble", f"{bubble.measured:.1%} of a step, {bubble.formula:.1%} by the formula: {bubble.text}"))
    most = max(performance.peak_memory, key=lambda each: each.bytes, default=None)
    return [*pairs, *([("peak memory", f"{formats.quantity(most.bytes, 'B')}, rank {most.rank}")] if most else [])]


def sent_along(traffic: AxisTraffic) -> str:
    """tensor: 1.2 MB a step from rank 0, 24.1 MB/s"""
    rate = "" if traffic.bytes_per_second is None else f", {formats.quantity(traffic.bytes_per_second, 'B')}/s"
    return f"{traffic.axis}: {formats.quantity(traffic.bytes_per_step, 'B')} a step from rank {traffic.rank}{rate}"


def world(job: Job) -> str:
    """runs with 1 of 2 ranks, 1 more parked"""
    size = f"{job.size} ranks"
    if job.size != job.world_size:
        size = f"{'ran' if job.ended else 'runs'} with {job.size} of {job.world_size} ranks"
    return f"{size}, {job.warming} more parked" if job.warming else size


def _goodput(goodput: Goodput | None) -> Pairs:
    """The useful part, then whatever took at least a hundredth of the time, the largest first."""
    if goodput is None:
        return []
    rest = sorted((part for part in goodput.parts if part.cause != "stepping" and part.share >= 0.01), key=lambda part: -part.share)
    costs = ", ".join(f"{part.cause.replace('_', ' ')} {part.seconds:.1f} s ({part.share:.0%})" for part in rest)
    return [("goodput", goodput.text), *([("", f"the rest: {costs}")] if costs and goodput.goodput is not None else [])]


def ranks(job: Job) -> str:
    axes = mesh_axes(job)
    headers = ["RANK", *map(str.upper, axes), "NODE", "SLOT", "STATE", "STEP", "PID", "HEARTBEAT", "EXIT"]
    rows = [
        [
            str(rank.rank),
            *(str(rank.place.get(axis, formats.UNKNOWN)) for axis in axes),
            rank.node_name,
            str(rank.slot),
            rank.state,
            str(rank.step),
            str(rank.pid or formats.UNKNOWN),
            formats.duration(rank.heartbeat_age_seconds),
            rank.signal or (formats.UNKNOWN if rank.exit_code is None else str(rank.exit_code)),
        ]
        for rank in job.ranks
    ]
    return table(headers, rows, empty="no ranks yet")


def mesh_axes(job: Job) -> list[str]:
    """Along which its ranks stand. Replicas alone need none: their number is the rank."""
    axes = list(dict.fromkeys(axis for rank in job.ranks for axis in rank.place))
    return [] if axes == ["replicate"] else axes


def incidents_table(incidents: list[Incident]) -> str:
    headers = ["FAULT", "OUTCOME", "OUTAGE", "LOST", "WHAT HAPPENED", "WHAT WAS DONE"]
    rows = [
        [formats.age(each.fault_at) + " ago", each.outcome, f"{each.age_seconds:.2f} s", lost(each), each.what, each.done]
        for each in incidents
    ]
    return table(headers, rows, empty="no incidents")


def lost(incident: Incident) -> str:
    """3 steps, 1.2 s of work"""
    if incident.steps_lost is None:
        return formats.UNKNOWN
    work = f", {incident.seconds_lost:.1f} s" if incident.seconds_lost else ""
    return f"{incident.steps_lost} {'step' if incident.steps_lost == 1 else 'steps'}{work}"
