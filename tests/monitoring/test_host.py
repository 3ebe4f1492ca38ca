from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import psutil
import pytest

from paceline.monitoring.host import HostSampler


def test_readings_are_those_of_this_machine(tmp_path: Path) -> None:
    sampler = HostSampler(tmp_path, time.monotonic())
    sample = sampler.sample(time.monotonic())
    assert sample.memory_total_bytes == psutil.virtual_memory().total
    assert 0 < sample.memory_used_bytes < sample.memory_total_bytes
    assert 0 < sample.disk_used_bytes <= sample.disk_total_bytes
    assert sample.cpu_percent >= 0


def test_rates_are_per_second_since_the_last_reading(tmp_path: Path) -> None:
    sent_before = psutil.net_io_counters().bytes_sent  # other processes send too: read before the sampler does, and after
    start = time.monotonic()
    sampler = HostSampler(tmp_path, start)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            client.sendall(bytes(1 << 16))
            peer.recv(1 << 16, socket.MSG_WAITALL)
    sample = sampler.sample(start + 2.0)
    sent_after = psutil.net_io_counters().bytes_sent
    assert 0 < sample.network_sent_bytes_per_second <= (sent_after - sent_before) / 2.0
    assert sampler.sample(start + 2.0).cpu_percent == pytest.approx(50, abs=50)


def test_no_partition_is_counted_beside_its_disk(tmp_path: Path) -> None:
    """The rates are those of whole disks, as psutil adds them up."""
    before = psutil.disk_io_counters(nowrap=False)
    if before is None:
        pytest.skip("this machine tells nothing of its disks")
    sampler, written = HostSampler(tmp_path, 0.0), tmp_path / "written"
    with written.open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    sample, after = sampler.sample(1.0), psutil.disk_io_counters(nowrap=False)
    assert after is not None
    assert sample.disk_written_bytes_per_second is not None
    assert sample.disk_written_bytes_per_second <= after.write_bytes - before.write_bytes
