"""The heartbeat: the state of this machine and its GPUs, as last read. It waits for no reading."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from paceline.cluster.protocol import Heartbeat
from paceline.monitoring.readings import Reading, values_of
from paceline.monitoring.samples import Gpu, GpuSample, HostSample

#: A reading that takes longer is told of: a driver is in trouble, or a file system does not answer.
SLOW_SECONDS = 15.0
#: In place of a reading of this machine that there is not: a coordinator knows it by its memory of 0.
UNKNOWN_HOST = HostSample(
    cpu_percent=0.0,
    memory_used_bytes=0,
    memory_total_bytes=0,
    disk_used_bytes=0,
    disk_total_bytes=0,
    network_sent_bytes_per_second=0.0,
    network_received_bytes_per_second=0.0,
    load_1m=0.0,
)
T = TypeVar("T")

log = logging.getLogger(__name__)


class Host(Protocol):
    def sample(self, now: float) -> HostSample: ...


class Gpus(Protocol):
    gpus: tuple[Gpu, ...]

    def sample(self) -> tuple[GpuSample, ...]: ...

    def close(self) -> None: ...


class Readings(Generic[T]):
    """The newest value of `read`, which is called in a thread of its own. There is never more than one call: while it hangs, the value gets old."""

    def __init__(self, name: str, read: Callable[[], T]) -> None:
        self._name, self._read = name, read
        self._asked: SimpleQueue[bool] = SimpleQueue()  # of the thread: to read, or to end
        self._is_under_way = False
        self._began_at = 0.0
        self._troubled = False
        self._fresh: T | None = None
        self.newest: T | None = None
        self.error: str | None = None  # of the last reading, if it failed
        threading.Thread(target=self._take_as_asked, name=f"readings of {name}", daemon=True).start()

    def refresh(self) -> None:
        """Begin a reading unless one is under way."""
        if not self._is_under_way:
            self._is_under_way, self._began_at = True, time.monotonic()
            self._asked.put(True)

    def end(self) -> None:
        """Begin no more readings: the thread ends after the one that is under way."""
        self._asked.put(False)

    def take(self) -> T | None:
        """The newest value, once; None where there has been no new one since the last call."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def under_way(self) -> bool:
        return self._is_under_way

    def trouble(self) -> str | None:
        """Why the newest value is out of date. Logged when that begins."""
        seconds = time.monotonic() - self._began_at
        hangs = self.under_way() and seconds > SLOW_SECONDS
        trouble = f"no reading of {self._name} for {seconds:.0f} s" if hangs else self.error
        if trouble is not None and not self._troubled:
            log.warning("%s; heartbeats go on without", trouble)
        self._troubled = trouble is not None
        return trouble

    def _take_as_asked(self) -> None:
        while self._asked.get():
            self._take()
            self._is_under_way = False

    def _take(self) -> None:
        try:
            self.newest = self._fresh = self._read()
            self.error = None
        except Exception as error:  # noqa: BLE001 - whatever a driver or psutil raises; told in `trouble`
            self.error = f"no reading of {self._name}: {str(error) or type(error).__name__}"


class RankHeartbeats:
    def __init__(self, host: Host, gpus: Gpus | None, gpu_error: str | None) -> None:
        """Make the heartbeats' source. `gpu_error`: why there is no GPU sampler."""
        self._sampler = gpus
        self._gpu_error = gpu_error
        self._host = Readings("this machine", lambda: host.sample(time.monotonic()))
        self._gpus = Readings("the GPUs", gpus.sample) if gpus else None
        self._refresh()

    def heartbeat(self, backlog_records: int) -> Heartbeat:
        """The heartbeat with the newest readings, without those that are out of date."""
        return Heartbeat(
            time=time.time(),
            host=(None if self._host.trouble() else self._host.newest) or UNKNOWN_HOST,
            gpus=self._gpu_samples(),
            gpu_error=self._gpu_error,
            backlog_records=backlog_records,
        )

    def take(self) -> Reading:
        """Return what has been read since the last call; the next readings are begun. A driver that hangs leaves its cards out, for as long as it
        does."""
        host, cards = self._host.take(), self._gpus.take() if self._gpus is not None else None
        reading = Reading(self._began_at, values_of(host, cards or ()))
        self._refresh()
        return reading

    def _gpu_samples(self) -> tuple[GpuSample, ...]:
        if self._gpus is None or self._sampler is None:
            return ()
        trouble = self._gpus.trouble()
        if trouble is not None:
            return tuple(GpuSample(index=gpu.index, uuid=gpu.uuid, error=trouble) for gpu in self._sampler.gpus)
        return self._gpus.newest or ()

    def gpu_percent(self, slot: int) -> float | None:
        """The utilization of the card of a slot, as a heartbeat would tell it now; None where it is not known, as while the driver hangs."""
        samples = self._gpu_samples()
        return samples[slot].utilization_percent if slot < len(samples) else None

    def _refresh(self) -> None:
        self._began_at = time.time()
        self._host.refresh()
        if self._gpus is not None:
            self._gpus.refresh()

    def close(self) -> None:
        """End the readings, and close the GPU driver. A driver that does not answer is not asked to close either."""
        self._host.end()
        if self._gpus is not None:
            self._gpus.end()
        if self._sampler is not None and self._gpus is not None and not self._gpus.under_way():
            self._sampler.close()
