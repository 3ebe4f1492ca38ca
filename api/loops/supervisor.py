"""Which loops a coordinator runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from api.deps import Services
from api.loops import housekeeping, nodes, retention, scheduler
from api.loops.lease_loop import LeaseLoop, run_until_stopped
from api.services import bus

SCHEDULER_SECONDS = 1.0
STOP_SECONDS = 5.0


def loops_of(services: Services) -> list[LeaseLoop]:
    watch = nodes.NodeWatch(services)
    return [
        LeaseLoop("scheduler", services, partial(scheduler.step_once, services), SCHEDULER_SECONDS, (bus.SCHEDULER,)),
        LeaseLoop("nodes", services, watch.step_once, nodes.INTERVAL_SECONDS),
        LeaseLoop("retention", services, partial(retention.step_once, services), retention.INTERVAL_SECONDS, (bus.RETENTION,)),
        LeaseLoop("housekeeping", services, partial(housekeeping.step_once, services), housekeeping.INTERVAL_SECONDS),
    ]


@asynccontextmanager
async def run_all(app: FastAPI) -> AsyncIterator[None]:
    """Every loop runs inside; on the way out each finishes its step."""
    stop = asyncio.Event()
    running = asyncio.create_task(run_until_stopped(loops_of(app.state.services), stop, STOP_SECONDS), name="loops")
    try:
        yield
    finally:
        stop.set()
        await running
