"""A coordinator process of its own with nodes that have joined already, so that a benchmark can load it and read its CPU time."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil

from paceline.api.core import identity
from paceline.cluster.states import NodeState
from paceline.credentials import NODE_PREFIX, hash_secret, new_secret
from paceline.db.migrate import upgrade_all
from paceline.db.models.identity import UserRow
from paceline.db.models.nodes import NodeRow
from paceline.db.session import open_databases

START_SECONDS, STOP_SECONDS = 60.0, 60.0


@dataclass(frozen=True)
class Coordinator:
    url: str
    key: str  # of an admin
    credentials: tuple[str, ...]  # one per node
    process: psutil.Process
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def client(self, timeout: float = 60.0) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {self.key}"}, timeout=timeout)


async def seed(data: Path, database_url: str | None, nodes: int) -> tuple[str, tuple[str, ...]]:
    """Fill the database; return (an admin's key, the credential of each node). A PostgreSQL database must be empty."""
    control, metrics = open_databases(data, database_url)
    await upgrade_all(control, metrics)
    now, credentials = datetime.now(UTC), tuple(new_secret(NODE_PREFIX) for _ in range(nodes))
    async with control.write() as session:
        user = UserRow(name="bench", role="admin", created_at=now)
        session.add(user)
        await session.flush()
        key, _ = await identity.create_api_key(session, user, name="bench", role="admin", now=now, expires_at=None)
        for number, credential in enumerate(credentials):
            digest = hash_secret(credential)
            joined = {"state": NodeState.JOINING, "state_since": now, "joined_at": now}
            session.add(NodeRow(name=f"node-{number:05d}", credential_hash=digest, **joined))
    await control.close()
    await metrics.close()
    return key, credentials


@asynccontextmanager
async def coordinator(
    nodes: int, *, port: int | None = None, database_url: str | None = None, prepare: Callable[[Path], Awaitable[None]] | None = None
) -> AsyncIterator[Coordinator]:
    """Run a coordinator. `prepare` gets its data folder, with migrated databases, before it starts."""
    with tempfile.TemporaryDirectory() as folder:
        key, credentials = await seed(Path(folder), database_url, nodes)
        if prepare is not None:
            await prepare(Path(folder))
        port, log = port or free_port(), Path(folder) / "coordinator.log"
        environment = {**os.environ, "PACELINE_DATA": folder, "DATABASE_URL": database_url or "", "REDIS_URL": ""}
        command = [sys.executable, "-m", "paceline.api.serve", "--port", str(port)]  # as `paceline up` starts it
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=output, stderr=output)
        try:
            await ready(f"http://127.0.0.1:{port}")
            yield Coordinator(f"http://127.0.0.1:{port}", key, credentials, psutil.Process(process.pid), log)
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
            report(log.read_text())


def report(log: str) -> None:
    """Print the coordinator's complaints, most frequent first. Numbers and ids are left out so that equal complaints count as one."""
    lines = [line for line in log.splitlines() if line[:1].strip() and not line.startswith("INFO:")]
    complaints = Counter(re.sub(r"[0-9A-Z]{20,}|[0-9]+", "#", line)[:160] for line in lines)
    for complaint, count in complaints.most_common(8):
        print(f"the coordinator said {count} times: {complaint}", file=sys.stderr)


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def ready(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    async with httpx.AsyncClient(base_url=url) as client:
        while time.monotonic() < deadline:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.05)
    raise TimeoutError(f"the coordinator was not ready within {START_SECONDS:.0f} s")
