"""Starts the process of simulated agents and keeps what it told last."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from scripts.bench.edges.load.agents import Told
from scripts.bench.edges.load.coordinator import Coordinator

STOP_SECONDS = 20.0


@dataclass
class Fleet:
    told: Told = field(default_factory=Told)

    async def until(self, condition: Callable[[Told], bool], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition(self.told):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:.0f} s: {what}; the agents told {self.told}")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def fleet(target: Coordinator, *, lifetime: float = 1.0) -> AsyncIterator[Fleet]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "credentials.json"
        file.write_text(json.dumps(target.credentials))
        command = [sys.executable, "-m", "scripts.bench.edges.load.agents", target.url, str(file), "--lifetime", str(lifetime)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        agents = Fleet()
        reader = asyncio.create_task(_read(process, agents))
        try:
            yield agents
        finally:
            reader.cancel()
            process.terminate()
            await asyncio.wait_for(process.wait(), STOP_SECONDS)


async def _read(process: asyncio.subprocess.Process, agents: Fleet) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        agents.told = msgspec.json.decode(line, type=Told)
