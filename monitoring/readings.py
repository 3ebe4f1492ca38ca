"""Readings of a node and its cards, taken once a second: the one list of their names and units, and the records that carry them.

A *subject* is what was read: `host`, a card (`gpu:0`, by the driver's index), a network interface (`net:eth0`). A value that the hardware
does not tell is absent. Sums and extremes of readings are kept as whole multiples of each metric's `step`, so that they pack well and add up
exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from paceline.monitoring.samples import GpuSample, HostSample

HOST = "host"
GPU_PREFIX, NETWORK_PREFIX = "gpu:", "net:"
#: Subjects of one record, and characters of a subject's name.
MAX_SUBJECTS, MAX_SUBJECT_CHARACTERS = 256, 64
MAX_READINGS = 60  # of one record
MAX_STEPS = 1 << 50  # of one value: sums of a day stay within 64 bits


class ReadingMetric(NamedTuple):
    """A metric of readings: its unit, and the least difference that is kept."""

    unit: str
    step: float


_PERCENT, _RATE, _MEMORY = ReadingMetric("%", 0.1), ReadingMetric("B/s", 1024.0), ReadingMetric("B", float(1 << 20))
#: 1 while the clocks of a card are held down for this reason, so that a mean is a share of the time.
_THROTTLED = ReadingMetric("", 1.0)
CARD_METRICS: Mapping[str, ReadingMetric] = {
    "utilization_percent": _PERCENT,
    "memory_used_bytes": _MEMORY,
    "temperature_celsius": ReadingMetric("°C", 1.0),
    "power_watts": ReadingMetric("W", 0.1),
    "sm_clock_mhz": ReadingMetric("MHz", 1.0),
    "memory_clock_mhz": ReadingMetric("MHz", 1.0),
    "throttled_by_power": _THROTTLED,
    "throttled_by_heat": _THROTTLED,
    "throttled_otherwise": _THROTTLED,
    "ecc_corrected": ReadingMetric("", 1.0),
    "ecc_uncorrected": ReadingMetric("", 1.0),
    "pcie_sent_bytes_per_second": _RATE,
    "pcie_received_bytes_per_second": _RATE,
    "nvlink_sent_bytes_per_second": _RATE,
    "nvlink_received_bytes_per_second": _RATE,
}
HOST_METRICS: Mapping[str, ReadingMetric] = {
    "cpu_percent": _PERCENT,
    "memory_used_bytes": _MEMORY,
    "load_1m": ReadingMetric("", 0.01),
    "disk_used_bytes": _MEMORY,
    "disk_read_bytes_per_second": _RATE,
    "disk_written_bytes_per_second": _RATE,
}
NETWORK_METRICS: Mapping[str, ReadingMetric] = {"sent_bytes_per_second": _RATE, "received_bytes_per_second": _RATE}

_BY_POWER = frozenset({"software_power_cap", "hardware_power_brake"})
_BY_HEAT = frozenset({"software_thermal_slowdown", "hardware_thermal_slowdown"})
#: NVML sets `hardware_slowdown` together with these, which are its causes.
_CAUSES_OF_SLOWDOWN = frozenset({"hardware_thermal_slowdown", "hardware_power_brake"})

Values = Mapping[str, Mapping[str, float]]  # subject -> metric -> value


def metrics_of(subject: str) -> Mapping[str, ReadingMetric]:
    """The metrics that a subject may have; none of a subject of an unknown kind."""
    if subject == HOST:
        return HOST_METRICS
    if subject.startswith(GPU_PREFIX) and subject[len(GPU_PREFIX) :].isdecimal():
        return CARD_METRICS
    return NETWORK_METRICS if subject.startswith(NETWORK_PREFIX) else {}


def card(index: int) -> str:
    """The subject of the card with this index."""
    return f"{GPU_PREFIX}{index}"


class ReadingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A few seconds of readings of one node. `columns`: by subject and metric one value for each of `times`; None: not read."""

    seq: int
    times: list[float]  # seconds since the epoch, on the node's clock
    columns: dict[str, dict[str, list[float | None]]]


class NodeReadings(msgspec.Struct, frozen=True, kw_only=True):
    """The readings of an upload: records in `seq` order without holes. `spool` is the file that numbers them: a new one begins at 1."""

    spool: int
    records: list[ReadingRecord]


@dataclass(frozen=True)
class Reading:
    """The values that were read in one second."""

    time: float
    values: Values


def record_of(seq: int, readings: Sequence[Reading]) -> ReadingRecord:
    """The record of some readings, in the order of time."""
    places = {(subject, name): None for each in readings for subject, values in each.values.items() for name in values}
    columns: dict[str, dict[str, list[float | None]]] = {}
    for subject, name in places:
        column = [each.values.get(subject, {}).get(name) for each in readings]
        columns.setdefault(subject, {})[name] = column
    return ReadingRecord(seq=seq, times=[round(each.time, 2) for each in readings], columns=columns)


def values_of(host: HostSample | None, cards: Iterable[GpuSample]) -> Values:
    """The values of one second. None: the host was not read. A card with an error has none."""
    found: dict[str, dict[str, float]] = {}
    if host is not None:
        found[HOST] = _told(host, HOST_METRICS)
        for name, rates in host.interfaces.items():
            found[f"{NETWORK_PREFIX}{name}"[:MAX_SUBJECT_CHARACTERS]] = _told(rates, NETWORK_METRICS)
    for sample in cards:
        if sample.error is None:
            found[card(sample.index)] = _told(sample, CARD_METRICS) | _throttles(sample)
    return found


def _told(sample: object, names: Iterable[str]) -> dict[str, float]:
    values = ((name, getattr(sample, name, None)) for name in names)
    return {name: float(value) for name, value in values if value is not None and math.isfinite(value)}


def _throttles(sample: GpuSample) -> dict[str, float]:
    if sample.sm_clock_mhz is None:
        return {}  # a card that does not tell its clocks does not tell what holds them down either
    reasons = set(sample.throttle_reasons)
    explained = {"applications_clocks_setting"} | ({"hardware_slowdown"} if reasons & _CAUSES_OF_SLOWDOWN else set())
    return {
        "throttled_by_power": float(bool(reasons & _BY_POWER)),
        "throttled_by_heat": float(bool(reasons & _BY_HEAT)),
        "throttled_otherwise": float(bool(reasons - _BY_POWER - _BY_HEAT - explained)),
    }
