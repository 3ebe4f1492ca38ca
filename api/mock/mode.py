"""MOCK_DB=true: a coordinator to look at and to develop with. Everything in it is real but the database's life and the nodes."""

from __future__ import annotations

import contextlib
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator

from fastapi import FastAPI

from paceline.api.core.background import in_background
from paceline.api.core.context import Services
from paceline.api.mock import nodes, people
from paceline.api.mock.access_log import without_nodes
from paceline.api.mock.database import private_database
from paceline.api.mock.director import Director
from paceline.api.services.identity import first_start
from paceline.api.settings import Settings


@contextlib.asynccontextmanager
async def prepared(settings: Settings) -> AsyncIterator[tuple[Settings, Process]]:
    """A context with the settings of a private database, and the process of the simulated nodes, which loads while the coordinator starts."""
    with private_database(settings) as ours, without_nodes():
        async with nodes.simulation(first_start.local_url(ours)) as simulation:
            yield ours, simulation


@contextlib.asynccontextmanager
async def running(app: FastAPI, services: Services, simulation: Process) -> AsyncIterator[None]:
    """A context in which guests are let in, simulated nodes work, and demo users have jobs."""
    keys = await people.create(services)
    print(
        f"MOCK_DB: {nodes.NODES} simulated nodes of {nodes.SLOTS} cards, demo jobs, and a database in {services.settings.data} that is gone "
        f"at the end.\nNo sign-in from this machine: {first_start.dashboard_address(services.settings)}",
        file=sys.stderr,
        flush=True,
    )
    await nodes.tell_tokens(simulation, services)
    async with (
        in_background("simulated nodes", lambda: nodes.told_when_ended(simulation)),
        in_background("demo", Director(app, keys, nodes.NODES).run),
    ):
        yield
