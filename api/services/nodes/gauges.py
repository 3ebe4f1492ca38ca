"""Gauges of nodes and their cards for Prometheus, in base units, from their last heartbeat. What is not told has no sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.samples import THROTTLE_NAMES

#: Nodes that are heard from: a gauge of a node that is away would stand still.
_HEARD = frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING})
Told = Mapping[str, Any]


class NodeGauge(NamedTuple):
    """A gauge: its name and help, the key of a reading, and what one of its units is in the base unit."""

    name: str
    help: str
    key: str
    factor: float = 1.0


_NODE_GAUGES = (
    NodeGauge("paceline_node_cpu_utilization_ratio", "Share of all CPUs of a node in use", "cpu_percent", 0.01),
    NodeGauge("paceline_node_memory_used_bytes", "Memory of a node in use", "memory_used_bytes"),
    NodeGauge("paceline_node_memory_size_bytes", "Memory of a node", "memory_total_bytes"),
    NodeGauge("paceline_node_disk_used_bytes", "Disk under the agent's data in use", "disk_used_bytes"),
    NodeGauge("paceline_node_disk_size_bytes", "Disk under the agent's data", "disk_total_bytes"),
    NodeGauge("paceline_node_disk_read_bytes_per_second", "Read from all disks of a node", "disk_read_bytes_per_second"),
    NodeGauge("paceline_node_disk_written_bytes_per_second", "Written to all disks of a node", "disk_written_bytes_per_second"),
)
_CARD_GAUGES = (
    NodeGauge("paceline_gpu_utilization_ratio", "Share of the time in which a kernel ran on a card", "utilization_percent", 0.01),
    NodeGauge("paceline_gpu_memory_used_bytes", "Memory of a card in use", "memory_used_bytes"),
    NodeGauge("paceline_gpu_memory_size_bytes", "Memory of a card", "memory_total_bytes"),
    NodeGauge("paceline_gpu_temperature_celsius", "Temperature of a card", "temperature_celsius"),
    NodeGauge("paceline_gpu_power_watts", "Power that a card draws", "power_watts"),
    NodeGauge("paceline_gpu_power_limit_watts", "Power that a card may draw", "power_limit_watts"),
    NodeGauge("paceline_gpu_sm_clock_hertz", "Clock of a card's multiprocessors", "sm_clock_mhz", 1e6),
    NodeGauge("paceline_gpu_memory_clock_hertz", "Clock of a card's memory", "memory_clock_mhz", 1e6),
    NodeGauge("paceline_gpu_ecc_uncorrected_errors", "Uncorrected ECC errors since the driver was loaded", "ecc_uncorrected"),
    NodeGauge("paceline_gpu_ecc_corrected_errors", "Corrected ECC errors since the driver was loaded", "ecc_corrected"),
    NodeGauge("paceline_gpu_pcie_sent_bytes_per_second", "Sent by a card over PCIe", "pcie_sent_bytes_per_second"),
    NodeGauge("paceline_gpu_pcie_received_bytes_per_second", "Received by a card over PCIe", "pcie_received_bytes_per_second"),
    NodeGauge("paceline_gpu_nvlink_sent_bytes_per_second", "Sent by a card over NVLink", "nvlink_sent_bytes_per_second"),
    NodeGauge("paceline_gpu_nvlink_received_bytes_per_second", "Received by a card over NVLink", "nvlink_received_bytes_per_second"),
)
_INTERFACE_GAUGES = (
    NodeGauge("paceline_node_network_sent_bytes_per_second", "Sent by a network interface of a node", "sent_bytes_per_second"),
    NodeGauge("paceline_node_network_received_bytes_per_second", "Received by a network interface of a node", "received_bytes_per_second"),
)


def describe(registry: CollectorRegistry, nodes: Iterable[NodeRow]) -> None:
    """Add the gauges of every node that is heard from."""
    heard = [(node, node.last_sample) for node in nodes if node.state in _HEARD and node.last_sample]
    hosts = [([node.name], sample.get("host") or {}) for node, sample in heard]
    cards = [([node.name, str(each["index"]), each["uuid"]], each) for node, sample in heard for each in sample.get("gpus", [])]
    interfaces = [
        ([node.name, name], rates) for node, sample in heard for name, rates in ((sample.get("host") or {}).get("interfaces") or {}).items()
    ]
    _add(registry, _NODE_GAUGES, ["node"], hosts)
    _add(registry, _CARD_GAUGES, ["node", "gpu", "uuid"], cards)
    _add(registry, _INTERFACE_GAUGES, ["node", "interface"], interfaces)
    throttled = Gauge(
        "paceline_gpu_throttled",
        "1 while a card's clocks are held down for this reason",
        ["node", "gpu", "uuid", "reason"],
        registry=registry,
    )
    for labels, each in cards:
        for reason in THROTTLE_NAMES if each.get("sm_clock_mhz") is not None else ():
            throttled.labels(*labels, reason).set(int(reason in each.get("throttle_reasons", ())))


def _add(registry: CollectorRegistry, gauges: Sequence[NodeGauge], labels: list[str], told: Sequence[tuple[list[str], Told]]) -> None:
    for each in gauges:
        gauge = Gauge(each.name, each.help, labels, registry=registry)
        for names, sample in told:
            if sample.get(each.key) is not None:
                gauge.labels(*names).set(float(sample[each.key]) * each.factor)
