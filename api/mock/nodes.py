"""The simulated nodes of MOCK_DB: a process of `paceline.cluster.simulation`, which ends when its standard input does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from datetime import timedelta

from paceline.api.core.context import Services
from paceline.api.services.nodes import joining

NODES, SLOTS, SPEEDUP = 64, 8, 10
#: By the modelled hour over the whole cluster: enough to see each kind of fault within minutes.
RATES = {"crashes": 8.0, "hangs": 1.5, "node-deaths": 1.0, "silences": 3.0}
TOKEN_LIFETIME = timedelta(minutes=10)
STOP_SECONDS = 5.0

log = logging.getLogger(__name__)


def command(url: str) -> list[str]:
    """The command line of the simulation. `url`: of this coordinator."""
    words = [sys.executable, "-m", "paceline.cluster.simulation.main", "--server", url, "--slots", str(SLOTS), "--speedup", str(SPEEDUP)]
    return [*words, *(word for name, rate in RATES.items() for word in (f"--{name}", str(rate)))]


@contextlib.asynccontextmanager
async def simulation(url: str) -> AsyncIterator[Process]:
    """A context with the process of the simulated nodes, which join once it has been told their tokens (`tell_tokens`).

    It loads its modules beside a coordinator that starts. `url` need not answer yet: the nodes try until it does.
    """
    process = await asyncio.create_subprocess_exec(*command(url), stdin=asyncio.subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        _stdin(process).close()
        await _end(process)


async def tell_tokens(process: Process, services: Services) -> None:
    """Let the simulated nodes join."""
    tokens: dict[str, str] = {}
    async with services.write() as session:
        for number in range(1, NODES + 1):
            token, _ = await joining.create_join_token(session, created_by="mock", now=services.now(), lifetime=TOKEN_LIFETIME)
            tokens[f"sim-{number:03d}"] = token
    _stdin(process).write(json.dumps(tokens).encode() + b"\n")
    await _stdin(process).drain()


async def told_when_ended(process: Process) -> None:
    """Log that the simulated nodes have gone before the coordinator has: without them every job waits, and nothing else says why."""
    code = await process.wait()
    log.error(
        "the simulated nodes have ended before the coordinator (exit code %d): nothing runs from now on; start the coordinator again", code
    )


def _stdin(process: Process) -> asyncio.StreamWriter:
    assert process.stdin is not None  # a pipe
    return process.stdin


async def _end(process: Process) -> None:
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
