"""The heartbeat: how this machine and its GPUs are doing."""

from __future__ import annotations

import asyncio
import time

from cluster.protocol import Heartbeat
from monitoring.gpu import GpuSampler
from monitoring.host import HostSampler


class Vitals:
    def __init__(self, host: HostSampler, gpus: GpuSampler | None, gpu_error: str | None) -> None:
        """`gpu_error`: why there is no GPU sampler."""
        self._host = host
        self._gpus = gpus
        self._gpu_error = gpu_error

    async def heartbeat(self, backlog_records: int) -> Heartbeat:
        return Heartbeat(
            time=time.time(),
            host=self._host.sample(time.monotonic()),
            # In a thread: a driver in trouble may take seconds to answer.
            gpus=await asyncio.to_thread(self._gpus.sample) if self._gpus else (),
            gpu_error=self._gpu_error,
            backlog_records=backlog_records,
        )
