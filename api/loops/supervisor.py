"""The loops that a coordinator runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from paceline.api.core import bus
from paceline.api.core.context import Services
from paceline.api.loops import (
    analyses,
    autoscaler,
    deliveries,
    experiments,
    housekeeping,
    launches,
    nodes,
    notifications,
    readings,
    retention,
    rollups,
    scheduler,
    storage,
)
from paceline.api.loops.due_looks import DueLooks
from paceline.api.loops.lease_loop import LeaseLoop, run_until_stopped
from paceline.api.services.history.heavy_reads import HeavyReads

SCHEDULER_SECONDS = 1.0
STOP_SECONDS = 5.0


def loops_of(services: Services, reads: HeavyReads) -> list[LeaseLoop]:
    watch, due = nodes.NodeWatch(services), DueLooks(services)
    keeper, launch_keeper = storage.StorageKeeper(services), launches.LaunchKeeper(services, due)
    return [
        LeaseLoop(
            "scheduler", services, scheduler.Scheduler(services).step_once, SCHEDULER_SECONDS, (bus.SCHEDULER,), waits_for_agents=True
        ),
        LeaseLoop(
            "experiments", services, experiments.ExperimentKeeper(services, due).step_once, experiments.INTERVAL_SECONDS, (bus.EXPERIMENTS,)
        ),
        LeaseLoop("analyses", services, analyses.Analyst(services, reads, due).step_once, analyses.INTERVAL_SECONDS),
        LeaseLoop("nodes", services, watch.step_once, nodes.INTERVAL_SECONDS),
        LeaseLoop(
            "launches",
            services,
            launch_keeper.step_once,
            launches.INTERVAL_SECONDS,
            (bus.LAUNCHES,),
            waits_for_agents=True,
            close=launch_keeper.close,
        ),
        LeaseLoop(
            "autoscaler", services, autoscaler.Autoscaler(services, due).step_once, autoscaler.INTERVAL_SECONDS, waits_for_agents=True
        ),
        LeaseLoop("retention", services, retention.Retention(services).step_once, retention.INTERVAL_SECONDS, (bus.RETENTION,)),
        LeaseLoop("storage", services, keeper.step_once, storage.INTERVAL_SECONDS, (bus.STORAGE,)),
        LeaseLoop("rollups", services, rollups.RollupKeeper(services).step_once, rollups.INTERVAL_SECONDS, (bus.ROLLUPS,)),
        LeaseLoop("readings", services, readings.ReadingsKeeper(services).step_once, readings.INTERVAL_SECONDS, (bus.READING_ROLLUPS,)),
        LeaseLoop(
            "notifications", services, notifications.NotificationWatch(services, reads, due).step_once, notifications.INTERVAL_SECONDS
        ),
        LeaseLoop("deliveries", services, deliveries.Courier(services, due).step_once, deliveries.INTERVAL_SECONDS, (bus.DELIVERIES,)),
        LeaseLoop("housekeeping", services, partial(housekeeping.step_once, services), housekeeping.INTERVAL_SECONDS),
    ]


@asynccontextmanager
async def run_all(app: FastAPI) -> AsyncIterator[None]:
    """A context in which every loop runs; on the way out each finishes its step."""
    stop = asyncio.Event()
    app.state.loops = loops_of(app.state.services, app.state.heavy_reads)
    running = asyncio.create_task(run_until_stopped(app.state.loops, stop, STOP_SECONDS), name="loops")
    try:
        yield
    finally:
        stop.set()
        await running
