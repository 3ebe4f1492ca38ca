"""MOCK_DB=true: a coordinator to look at and to develop with. Everything in it is real but the database's life and the nodes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator

from fastapi import FastAPI

from paceline.api.core.background import in_background
from paceline.api.core.context import Services
from paceline.api.mock import nodes, people
from paceline.api.mock.director import Director
from paceline.api.services.identity import first_start


@contextlib.asynccontextmanager
async def running(app: FastAPI, services: Services) -> AsyncIterator[None]:
    """A context in which guests are let in, simulated nodes work, and demo users have jobs."""
    keys = await people.settle(services)
    url = f"http://127.0.0.1:{services.settings.uvicorn_port or first_start.port_of(sys.argv) or first_start.DEFAULT_PORT}"
    print(
        f"MOCK_DB: {nodes.NODES} simulated nodes of {nodes.SLOTS} cards, demo jobs, and a database in {services.settings.data} that is gone "
        f"at the end.\nNo sign-in from this machine: {services.settings.public_url or url}",
        file=sys.stderr,
        flush=True,
    )
    async with nodes.simulated_nodes(services, url), in_background("demo", Director(app, keys, nodes.NODES).run):
        yield
