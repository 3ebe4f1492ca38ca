"""The cluster as a whole, and its GPUs."""

from __future__ import annotations

from paceline.cli.answers import parsed
from paceline.cli.api_types import ClusterSummary, GpuReading, GpuStatus, Node, SlotUse, StateCount
from paceline.cli.render import formats
from paceline.cli.render.output import fields, table
from paceline.cli.session import Session, with_session

GIB = 1 << 30
#: Nodes by id and the index of a card, with who holds it.
Holders = dict[tuple[str, int], SlotUse]


@with_session
def cluster(session: Session) -> None:
    """Show the cluster in numbers: nodes and jobs by state, slots in use, load and throughput."""
    with session.client() as client:
        document = client.get("/metrics/cluster/summary")
    session.emit(document, lambda: _summary(parsed(document, ClusterSummary)))
    session.next_steps("paceline nodes", "paceline gpus")


@with_session
def gpus(session: Session) -> None:
    """List the GPUs of all nodes: newest readings, and the job and rank on each card."""
    with session.client() as client:
        document = client.get("/cluster/gpu-status")
        nodes = [parsed(node, Node) for node in client.pages("/cluster/nodes")] if session.for_people else []
    session.emit(document, lambda: _gpus(parsed(document, GpuStatus), holders_of(nodes)))


def holders_of(nodes: list[Node]) -> Holders:
    """Return the held slots by card. An agent reads the cards that it offers, in the order of its slots: with --gpus 2,0 slot 0 is GPU 2."""
    offering = [node for node in nodes if node.device == "cuda"]
    return {(node.id, gpu.index): slot for node in offering for slot, gpu in zip(node.slots, node.gpus, strict=False) if slot.job_id}


def _summary(summary: ClusterSummary) -> str:
    memory = f"{formats.quantity(summary.memory_used_bytes, 'B')} of {formats.quantity(summary.memory_total_bytes, 'B')}"
    cpu = formats.UNKNOWN if summary.cpu_percent is None else f"{summary.cpu_percent:.0f}%"
    pairs = [
        ("nodes", _counts(summary.nodes)),
        ("jobs", _counts(summary.jobs)),
        ("slots", f"{summary.slots_used} of {summary.slots_total} used, {summary.slots_free} free"),
        ("gpus", str(summary.gpus)),
        *(_cards(summary) if summary.gpus else []),
        ("cpu", cpu),
        ("memory", memory),
        ("throughput", formats.throughput(summary.tokens_per_second or None, summary.samples_per_second or None)),
    ]
    return fields(pairs)


def _cards(summary: ClusterSummary) -> list[tuple[str, str]]:
    used, total = formats.quantity(summary.gpu_memory_used_bytes, "B"), formats.quantity(summary.gpu_memory_total_bytes, "B")
    power = summary.gpu_power_watts
    return [
        ("gpu use", _rounded(summary.gpu_percent, "%")),
        ("gpu memory", f"{used} of {total}"),
        ("gpu power", formats.UNKNOWN if power is None else formats.quantity(power, "W")),
    ]


def _counts(counts: list[StateCount]) -> str:
    return ", ".join(f"{each.count} {each.state}" for each in counts if each.count) or "none"


def _gpus(status: GpuStatus, holders: Holders) -> str:
    rows = [_row(gpu, holders.get((gpu.node_id, gpu.index))) for gpu in status.gpus]
    without = f"no GPU on {', '.join(status.nodes_without_gpu)}" if status.nodes_without_gpu else "no GPUs"
    headers = ["NODE", "GPU", "USE", "MEMORY", "TEMP", "POWER", "AGE", "JOB", "RANK", "CARD"]
    return table(headers, rows, empty=without, fit=True, drop=("AGE", "TEMP", "POWER", "MEMORY"))


def _row(gpu: GpuReading, holder: SlotUse | None) -> list[str]:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return [
        gpu.node_name,
        str(gpu.index),
        _rounded(gpu.utilization_percent, "%"),
        formats.UNKNOWN if used is None or total is None else f"{used / GIB:.1f}/{total / GIB:.0f} GiB",
        _rounded(gpu.temperature_celsius, " C"),
        _rounded(gpu.power_watts, " W"),
        formats.duration(gpu.age_seconds),
        holder.job_name or formats.UNKNOWN if holder else formats.UNKNOWN,
        formats.UNKNOWN if holder is None or holder.rank is None else str(holder.rank),
        gpu.error or gpu.name,
    ]


def _rounded(value: float | None, unit: str) -> str:
    return formats.UNKNOWN if value is None else f"{value:.0f}{unit}"
