"""Gauges of nodes and cards in `/metrics`: base units, nothing where nothing is told, and names that promtool's rules take."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from paceline.api.services.nodes import gauges
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow

#: What promtool's linter complains about: units that are no base units, abbreviations, a counter's suffix on a gauge.
BAD_NAMES = re.compile(r"percent|milli|kilo|mega|mhz|_mb|_kb|_ms\b|_(count|sum|total|bucket)$|[A-Z]")
HOST = {
    "cpu_percent": 50.0,
    "memory_used_bytes": 7,
    "interfaces": {"eth0": {"sent_bytes_per_second": 2.0, "received_bytes_per_second": 3.0}},
}
CARD = {
    "index": 1,
    "uuid": "GPU-1",
    "utilization_percent": 97.0,
    "power_watts": 350.5,
    "temperature_celsius": None,
    "sm_clock_mhz": 1980,
    "throttle_reasons": ["software_power_cap"],
}


def node(name: str, state: NodeState, host: dict[str, Any] | None, *cards: dict[str, Any]) -> NodeRow:
    sample = None if host is None else {"host": host, "gpus": list(cards), "gpu_error": None}
    return NodeRow(name=name, state=state, last_sample=sample, heartbeat_at=datetime.now(UTC))


def told(*nodes: NodeRow) -> dict[str, float]:
    registry = CollectorRegistry()
    gauges.describe(registry, nodes)
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert all(family.type == "gauge" and family.documentation for family in families)
    assert [family.name for family in families if BAD_NAMES.search(family.name)] == []
    return {f"{sample.name}[{spoken(sample.labels)}]": sample.value for family in families for sample in family.samples}


def spoken(labels: dict[str, str]) -> str:
    return ",".join(labels[name] for name in ("node", "gpu", "interface", "uuid", "reason") if name in labels)


def test_readings_are_told_in_base_units() -> None:
    found = told(node("a", NodeState.READY, HOST, CARD))
    assert found["paceline_node_cpu_utilization_ratio[a]"] == 0.5
    assert found["paceline_node_network_received_bytes_per_second[a,eth0]"] == 3.0
    assert found["paceline_gpu_utilization_ratio[a,1,GPU-1]"] == 0.97
    assert found["paceline_gpu_power_watts[a,1,GPU-1]"] == 350.5
    assert found["paceline_gpu_sm_clock_hertz[a,1,GPU-1]"] == 1.98e9
    assert found["paceline_gpu_throttled[a,1,GPU-1,software_power_cap]"] == 1
    assert found["paceline_gpu_throttled[a,1,GPU-1,hardware_thermal_slowdown]"] == 0


def test_what_is_not_told_has_no_sample() -> None:
    found = told(node("a", NodeState.READY, HOST, CARD, {"index": 2, "uuid": "GPU-2", "error": "GPU is lost", "throttle_reasons": []}))
    assert not [name for name in found if "temperature" in name or "GPU-2" in name]


def test_a_node_that_is_away_or_was_never_read_has_none() -> None:
    assert told(node("away", NodeState.UNREACHABLE, HOST, CARD), node("new", NodeState.READY, None)) == {}
