"""A coordinator whose pool is the autoscaler's, with a provider in this process and the time as an argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import httpx

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.loops.autoscaler import Autoscaler
from paceline.api.loops.due_looks import DueLooks
from paceline.api.loops.launches import LaunchKeeper
from paceline.api.services.lifecycle import node_lifecycle
from paceline.cluster.protocol import JOIN_PATH
from paceline.cluster.provisioners.provisioner import LaunchPhase, SeenLaunch
from paceline.cluster.states import JobState, NodeState, RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.fake_provisioner import FakeProvisioner

NODES, POOLS, LAUNCHES = "/api/v1/cluster/nodes", "/api/v1/cluster/pools", "/api/v1/cluster/launches"
POOL: dict[str, Any] = {
    "name": "lab",
    "provider": {"type": "ssh", "hosts": ["ada@gpu1", "ada@gpu2", "ada@gpu3"]},
    "slots": 2,
    "autoscale": {"device": "cpu", "idle_seconds": 60, "discards_checkpoints": True},
}


@dataclass
class Grown:
    """A coordinator with its loops of launches and of scaling, and the provider that they ask."""

    services: Services
    client: httpx.AsyncClient
    provider: FakeProvisioner
    now: datetime
    joined: set[str] = field(default_factory=set)
    autoscaler: Autoscaler = field(init=False)
    keeper: LaunchKeeper = field(init=False)

    def __post_init__(self) -> None:
        self.services = replace(self.services, now=lambda: self.now)
        self.autoscaler, self.keeper = (
            Autoscaler(self.services, DueLooks(self.services)),
            LaunchKeeper(self.services, DueLooks(self.services), self.provider.factory),
        )

    async def apply(self, **changes: Any) -> None:
        answer = await self.client.put(f"{POOLS}/lab", json=POOL | changes)
        assert answer.status_code == 200, answer.text

    async def step(self, seconds: float = 2.0) -> None:
        self.now += timedelta(seconds=seconds)
        await self.autoscaler.step_once(self.now)
        await self.keeper.step_once(self.now)

    async def submit(self, **changes: Any) -> JobRow:
        async with self.services.write() as session:
            spec = JobSpec.model_validate(changes) if "script" in changes else factories.job_spec(**changes)
            return await factories.create_job(session, spec=spec, queued_at=self.now)

    async def join_all(
        self, *, ready: bool = True, inventory: Mapping[str, Any] | Callable[[str], dict[str, Any]] | None = None
    ) -> list[str]:
        """Let the agents of all nodes that were asked for and have not joined join. `inventory`: of each, or by its name. Returns the new nodes."""
        ids = []
        for name, request in self.provider.requests.items():
            if name in self.joined:
                continue
            self.joined.add(name)
            self.provider.seen[f"fake/{name}"] = SeenLaunch(LaunchPhase.RUNNING)
            joined = await self.client.post(JOIN_PATH, json={"token": request.join_token, "name": name})
            ids.append(joined.json()["node_id"])
            if not ready:
                continue
            async with self.services.write() as session:
                node = await node_rows.get_locked(session, ids[-1])
                assert node is not None
                node.slots, node.device, node.channel_id = 2, "cpu", name
                node.inventory = inventory(name) if callable(inventory) else dict(inventory) if inventory is not None else None
                await node_lifecycle.move(session, node, NodeState.READY, SYSTEM, "its agent is there", self.now)
        return ids

    async def run_on(self, job: JobRow, node_ids: list[str]) -> None:
        """Let the job hold all slots of these nodes."""
        async with self.services.write() as session:
            found = await session.get(JobRow, job.id)
            assert found is not None
            found.state, found.generation = JobState.RUNNING, 1
            session.add(GenerationRow(job_id=job.id, generation=1, world_size=job.world_size, started_at=self.now, store_token="t"))
            await session.flush()
            places = [(node, slot) for node in node_ids for slot in range(2)]
            for rank, (node, slot) in enumerate(places):
                session.add(
                    RankRow(
                        job_id=job.id,
                        generation=1,
                        rank=rank,
                        node_id=node,
                        slot=slot,
                        local_rank=slot,
                        node_rank=rank // 2,
                        state=RankState.RUNNING,
                        updated_at=self.now,
                    )
                )

    async def tell(self, job: JobRow, *, eta_seconds: float) -> None:
        """Let the job say how long it will take."""
        async with self.services.write() as session:
            found = await session.get(JobRow, job.id)
            assert found is not None
            found.progress = {"step": 1, "eta_seconds": eta_seconds, "updated_at": self.now.isoformat()}

    async def end(self, job: JobRow) -> None:
        async with self.services.write() as session:
            found = await session.get(JobRow, job.id)
            assert found is not None
            found.state = JobState.COMPLETED
            for rank in range(4):
                row = await session.get(RankRow, (job.id, 1, rank))
                assert row is not None
                row.state = RankState.EXITED

    async def pool(self) -> dict[str, Any]:
        return dict((await self.client.get(f"{POOLS}/lab")).json())

    async def states(self) -> list[str]:
        return sorted(node["state"] for node in (await self.client.get(NODES)).json()["items"])

    async def coming(self) -> list[str]:
        return [each["name"] for each in (await self.client.get(LAUNCHES)).json()["items"]]

    async def told(self) -> list[tuple[str, str]]:
        """(type, cause) of what the autoscaler has done."""
        events = (await self.client.get("/api/v1/events", params={"limit": 200})).json()["items"]
        return [(each["type"], each["cause"]) for each in events if each["actor"]["name"] == "autoscaler"]
