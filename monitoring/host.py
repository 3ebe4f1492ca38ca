"""Readings of this machine through psutil; rates are means since the last reading."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from paceline.monitoring.samples import HostSample


class HostSampler:
    def __init__(self, disk: Path, now: float) -> None:
        """`disk`: a path on the file system to watch. `now` is monotonic."""
        self._disk = disk
        self._network = _network_bytes()
        self._sampled_at = now
        psutil.cpu_percent()  # the first call has nothing to compare with and returns 0

    def sample(self, now: float) -> HostSample:
        memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(self._disk))
        (sent_before, received_before), (sent, received) = self._network, _network_bytes()
        seconds = max(now - self._sampled_at, 1e-3)
        self._network, self._sampled_at = (sent, received), now
        return HostSample(
            cpu_percent=psutil.cpu_percent(),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            disk_used_bytes=disk.used,
            disk_total_bytes=disk.total,
            network_sent_bytes_per_second=max(0.0, (sent - sent_before) / seconds),
            network_received_bytes_per_second=max(0.0, (received - received_before) / seconds),
            load_1m=os.getloadavg()[0],
        )


def available_memory_bytes() -> int:
    """Return the bytes of memory that could be allocated without swapping."""
    return int(psutil.virtual_memory().available)


def _network_bytes() -> tuple[int, int]:
    """Sent and received over all interfaces."""
    counters = psutil.net_io_counters()
    return (counters.bytes_sent, counters.bytes_recv) if counters else (0, 0)
