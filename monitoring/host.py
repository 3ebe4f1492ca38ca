"""Readings of this machine through psutil; rates are means since the last reading."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from paceline.monitoring.samples import HostSample, InterfaceRates

_LOOPBACK = "lo"
#: Interfaces that are told of by name; a machine with containers may have hundreds.
MAX_INTERFACES = 16


@dataclass(frozen=True)
class _Counters:
    """What the kernel has counted since it was started, in bytes. `disk` is (read, written), None where it does not tell."""

    time: float
    network: dict[str, tuple[int, int]]  # sent and received, by interface
    disk: tuple[int, int] | None


class HostSampler:
    def __init__(self, disk: Path, now: float) -> None:
        """`disk`: a path on the file system to watch. `now` is monotonic."""
        self._disk = disk
        self._before = _counters(now)
        psutil.cpu_percent()  # the first call has nothing to compare with and returns 0

    def sample(self, now: float) -> HostSample:
        memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(self._disk))
        before, self._before = self._before, _counters(now)
        seconds = max(now - before.time, 1e-3)
        network = {name: _rates(before.network.get(name, counts), counts, seconds) for name, counts in self._before.network.items()}
        known = before.disk is not None and self._before.disk is not None
        read, written = _rates(before.disk or (0, 0), self._before.disk or (0, 0), seconds) if known else (None, None)
        return HostSample(
            cpu_percent=psutil.cpu_percent(),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            disk_used_bytes=disk.used,
            disk_total_bytes=disk.total,
            network_sent_bytes_per_second=sum(sent for sent, _ in network.values()),
            network_received_bytes_per_second=sum(received for _, received in network.values()),
            load_1m=os.getloadavg()[0],
            disk_read_bytes_per_second=read,
            disk_written_bytes_per_second=written,
            interfaces={name: _interface(*network[name]) for name in sorted(network.keys() - {_LOOPBACK})[:MAX_INTERFACES]},
        )


def available_memory_bytes() -> int:
    """Return the bytes of memory that could be allocated without swapping."""
    return int(psutil.virtual_memory().available)


@functools.cache
def _is_whole(disk: str) -> bool:
    """Whether this is no partition of another disk, as psutil decides it, which looks at every disk each time."""
    return not psutil.LINUX or os.path.exists(f"/sys/block/{disk.replace('/', '!')}")


def _counters(now: float) -> _Counters:
    network, disks = psutil.net_io_counters(pernic=True, nowrap=False), psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    whole = [each for name, each in disks.items() if _is_whole(name)]
    return _Counters(
        time=now,
        network={name: (each.bytes_sent, each.bytes_recv) for name, each in network.items()},
        disk=(sum(each.read_bytes for each in whole), sum(each.write_bytes for each in whole)) if whole else None,
    )


def _rates(before: tuple[int, int], after: tuple[int, int], seconds: float) -> tuple[float, float]:
    """Per second; 0 of a counter that has begun anew."""
    return max(0.0, (after[0] - before[0]) / seconds), max(0.0, (after[1] - before[1]) / seconds)


def _interface(sent: float, received: float) -> InterfaceRates:
    return InterfaceRates(sent_bytes_per_second=sent, received_bytes_per_second=received)
