"""Rates of a card's PCIe and NVLink traffic through NVML: differences of counters, or the driver's own short measurement of PCIe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pynvml

_ALL_LINKS = 0xFFFFFFFF
_KIBIBYTE = 1024
#: Counters in one call: (field, scope), and the bytes of one unit. The NVLink counters are sums over all links, in KiB.
_COUNTERS = {
    "pcie_sent": ((pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0), 1),
    "pcie_received": ((pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0), 1),
    "nvlink_sent": ((pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS), _KIBIBYTE),
    "nvlink_received": ((pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS), _KIBIBYTE),
}
_MEASURED = {"pcie_sent": pynvml.NVML_PCIE_UTIL_TX_BYTES, "pcie_received": pynvml.NVML_PCIE_UTIL_RX_BYTES}
_UNSUPPORTED = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NoPermission)
_KINDS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal"}


@dataclass(frozen=True)
class TrafficCounters:
    """Bytes since some moment in the past, by link and direction; what the card does not count is absent."""

    time: float
    bytes: dict[str, float]


class TrafficMeter:
    """The traffic of one card. The first reading has no rates from counters: there is nothing to compare with."""

    def __init__(self) -> None:
        self._before: TrafficCounters | None = None

    def rates(self, handle: Any, now: float) -> dict[str, float]:
        """Bytes per second since the last call: `pcie_sent`, `nvlink_received`, ...; what the card does not tell is absent. `now` is
        monotonic. Raises NVMLError of a lost card."""
        before, self._before = self._before, TrafficCounters(now, _counters(handle))
        found = {} if before is None else differences(before, self._before)
        for name, counter in _MEASURED.items():
            if name not in self._before.bytes and (rate := _measured(handle, counter)) is not None:
                found[name] = rate
        return found


def differences(before: TrafficCounters, after: TrafficCounters) -> dict[str, float]:
    """The rates between two readings; none of a counter that has begun anew."""
    seconds = after.time - before.time
    pairs = {name: (before.bytes[name], value) for name, value in after.bytes.items() if name in before.bytes}
    return {name: (new - old) / seconds for name, (old, new) in pairs.items() if seconds > 0 and new >= old}


def _counters(handle: Any) -> dict[str, float]:
    try:
        fields = pynvml.nvmlDeviceGetFieldValues(handle, [field for field, _ in _COUNTERS.values()])
    except _UNSUPPORTED:
        return {}
    told = zip(_COUNTERS.items(), fields, strict=True)
    return {name: _number(field) * unit for (name, (_, unit)), field in told if field.nvmlReturn == pynvml.NVML_SUCCESS}


def _number(field: Any) -> float:
    return float(getattr(field.value, _KINDS.get(field.valueType, "ullVal")))


def _measured(handle: Any, counter: int) -> float | None:
    """The traffic over the last 20 ms, for which the call takes as long."""
    try:
        return float(pynvml.nvmlDeviceGetPcieThroughput(handle, counter)) * 1000  # it tells KB/s
    except _UNSUPPORTED:
        return None
