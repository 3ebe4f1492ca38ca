"""A cluster in one database, without sockets: whatever order things happen in, each happens through the coordinator's own functions.

For `tests/integration/test_any_order.py`. An agent obeys what it is told and reports what its ranks do, as a real one; what they do is up
to the test.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import select, update

from paceline.api.core.context import Services
from paceline.api.core.last_uses import LastUses
from paceline.api.errors import ProblemError
from paceline.api.loops.launches import LaunchKeeper
from paceline.api.loops.lease_loop import LeaseLoop
from paceline.api.loops.supervisor import loops_of
from paceline.api.schemas.common import Actor
from paceline.api.schemas.jobs import Resize
from paceline.api.services.jobs import descriptions, jobs
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.scheduling import observations
from paceline.api.services.scheduling.assignments import desired_of
from paceline.api.services.scheduling.observations import NodeReport
from paceline.api.settings import Settings
from paceline.cluster.protocol import Desired, Observed, ObservedAssignment, ObservedRank
from paceline.cluster.states import JobState, NodeState, RankState
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.session import open_sqlite
from paceline.training.link import RankPlace
from tests import factories
from tests.any_data import AnyData, ReadsHere
from tests.factories import START
from tests.fake_provisioner import FakeProvisioner

#: A turn of a loop takes some milliseconds; one that takes so long has no end.
TURN_SECONDS = 60.0
USER = Actor(kind="user", id="u", name="ada")
Key = tuple[str, int, int]


@dataclass
class Agent:
    """One node's agent: what it was told, and what its ranks are at."""

    node_id: str
    connected: bool = True
    revision: int = 0
    ranks: dict[Key, ObservedRank] = field(default_factory=dict)
    identities: dict[Key, tuple[int, int]] = field(default_factory=dict)
    said: list[Observed] = field(default_factory=list)

    def obey(self, desired: Desired, on_arrival: RankState) -> None:
        """Start, move, stop and forget, as it is told. `on_arrival`: how far ranks come at once."""
        wanted = {(each.job_id, each.generation, world.rank): (each.action, world) for each in desired.assignments for world in each.worlds}
        for key, (action, world) in wanted.items():
            if key not in self.ranks and (action == "run" or world.birth is not None):
                self.ranks[key] = self._arrival(world, on_arrival)
                self.identities[key] = (world.process.generation, world.process.rank)
            elif key in self.ranks and action != "run" and self.ranks[key].state is not RankState.EXITED:
                outcome: Any = {"pause": "paused", "release": "released"}.get(action, "failed")
                self.ranks[key] = msgspec.structs.replace(
                    self.ranks[key], state=RankState.EXITED, outcome=outcome, exit_code=0, drained=True
                )
        self.ranks = {key: rank for key, rank in self.ranks.items() if key in wanted}
        self.revision = desired.revision

    def _arrival(self, world: RankPlace, state: RankState) -> ObservedRank:
        """A new process; or the one that is meant, alive or dead, with what it has said of itself."""
        for key, rank in reversed(self.ranks.items()):
            if key[0] == world.job_id and world.birth is not None and self.identities[key] == (world.birth.generation, world.birth.rank):
                left = rank if rank.state is RankState.EXITED else msgspec.structs.replace(rank, failure=None, stall=None, state=state)
                return msgspec.structs.replace(left, rank=world.rank, slot=world.slot)
        state = RankState.PARKED if world.parked and state is RankState.RUNNING else state
        return ObservedRank(rank=world.rank, slot=world.slot, state=state, pid=1000 + world.rank)

    def report(self) -> Observed:
        gangs: dict[tuple[str, int], list[ObservedRank]] = {}
        for (job_id, generation, _), rank in self.ranks.items():
            gangs.setdefault((job_id, generation), []).append(rank)
        found = tuple(ObservedAssignment(job_id=job, generation=number, ranks=tuple(ranks)) for (job, number), ranks in gangs.items())
        self.said.append(Observed(revision=self.revision, assignments=found))
        return self.said[-1]


class AnyCluster:
    """The coordinator's loops and agents on one clock."""

    def __init__(self, data: Path) -> None:
        control, metrics = (open_sqlite(data / name, synchronous="OFF") for name in ("paceline.db", "metrics.db"))
        settings = Settings(data=data, database_url=None, redis_url=None)
        self.services = replace(Services(settings, control, metrics, LastUses(control)), now=lambda: self.now)
        self.services.uptime.monotonic = lambda: (self.now - START).total_seconds()  # else each step were one of the clock
        self.now: datetime = START
        self.agents: list[Agent] = []
        self.jobs: list[str] = []
        self.data = AnyData(self)
        self.provider = FakeProvisioner()
        self._reads = ReadsHere(self.services)
        self.loops = self._all_loops()

    def _all_loops(self) -> list[LeaseLoop]:
        """Every loop of a coordinator. Nodes are asked for at a provider in this process."""
        loops = loops_of(self.services, self._reads)
        (launching,) = [each for each in loops if each.name == "launches"]
        keeper: LaunchKeeper = launching.step.__self__  # type: ignore[attr-defined]
        keeper.factory = self.provider.factory
        return loops

    async def close(self) -> None:
        self._reads.close()
        await self.services.control.close()
        await self.services.metrics.close()

    async def add_node(self, slots: int) -> Agent:
        name = f"node-{len(self.agents)}"
        async with self.services.write() as session:
            node, _ = await factories.create_node(
                session, name=name, slots=slots, channel_id="c", joined_at=self.now, heartbeat_at=self.now
            )
        self.agents.append(Agent(node.id))
        return self.agents[-1]

    async def submit(self, **spec: Any) -> str:
        async with self.services.write() as session:
            job = await job_lifecycle.submit(session, factories.job_spec(**spec), USER, self.now)
        self.jobs.append(job.id)
        return job.id

    async def ask(self, job_id: str, what: str, nodes: int = 1) -> None:
        """As a user may: what is refused changes nothing."""
        try:
            async with self.services.write() as session:
                job = await jobs.find(session, job_id, lock=True)
                if what == "resize":
                    await jobs.resize(session, job, Resize(nodes=nodes), "*", USER, self.now)
                else:
                    await getattr(jobs, what)(session, job, "*", USER, self.now)
        except ProblemError as refused:
            if refused.status >= 500:
                raise

    async def step(self, seconds: float, first: int = 0) -> None:
        """Each loop takes a turn, this one first; connected agents have just been heard of."""
        self.now += timedelta(seconds=seconds)
        async with self.services.write() as session:
            alive = [agent.node_id for agent in self.agents if agent.connected]
            await session.execute(update(NodeRow).where(NodeRow.id.in_(alive)).values(heartbeat_at=self.now))
        first %= len(self.loops)
        for loop in (*self.loops[first:], *self.loops[:first]):
            await self.take_turn(loop)

    async def take_turn(self, loop: LeaseLoop) -> None:
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await loop.step_once(self.now)
        except TimeoutError as error:
            raise AssertionError(f"a turn of the {loop.name} loop has no end") from error

    async def talk(self, agent: Agent, on_arrival: RankState) -> None:
        """One round between an agent and the coordinator."""
        async with self.services.control.read() as session:
            node = await session.get(NodeRow, agent.node_id)
            if node is None or node.state is NodeState.GONE or not agent.connected:
                return
            agent.obey((await desired_of(session, [node]))[node.id], on_arrival)
        await self.hear(agent, agent.report())

    async def hear(self, agent: Agent, said: Observed) -> None:
        async with self.services.write() as session:
            node = await session.get(NodeRow, agent.node_id, with_for_update={"key_share": True})
            assert node is not None
            await observations.apply_all(session, [NodeReport(node, said, self.now)])

    async def connect(self, agent: Agent, connected: bool) -> None:
        agent.connected = connected
        back = {"state": NodeState.READY, "state_before_unreachable": None}
        async with self.services.write() as session:
            node = await session.get(NodeRow, agent.node_id)
            assert node is not None
            away = connected and node.state in (NodeState.UNREACHABLE, NodeState.LOST)
            values = {"channel_id": "c" if connected else None, **(back if away else {})}
            await session.execute(update(NodeRow).where(NodeRow.id == agent.node_id).values(**values))

    async def set_node(self, agent: Agent, state: NodeState) -> None:
        """Cordoned, drained, or back."""
        present = (NodeState.READY, NodeState.CORDONED, NodeState.DRAINING)
        async with self.services.write() as session:
            await session.execute(update(NodeRow).where(NodeRow.id == agent.node_id, NodeRow.state.in_(present)).values(state=state))

    async def change(self, table: type[Any], where: Any, **values: Any) -> None:
        async with self.services.write() as session:
            await session.execute(update(table).where(where).values(**values))

    async def job(self, job_id: str) -> JobRow:
        async with self.services.control.read() as session:
            job = await session.get(JobRow, job_id)
        assert job is not None
        return job

    async def places(self, agent: Agent) -> list[Key]:
        """Where ranks are, or are to be, on a node."""
        async with self.services.control.read() as session:
            rows = await session.execute(select(RankRow.job_id, RankRow.generation, RankRow.rank).where(RankRow.node_id == agent.node_id))
            return [(job, generation, rank) for job, generation, rank in rows]

    async def held_up(self) -> list[str]:
        async with self.services.control.read() as session:
            return list(await session.scalars(select(EventRow.message).where(EventRow.type.like("%held_up"))))

    async def show_all(self) -> None:
        """Every job can be listed and shown."""
        async with self.services.control.read() as session:
            for row in await session.scalars(select(JobRow)):
                await descriptions.describe(session, row, self.now)

    async def until(self, job_id: str, state: JobState, agent: Agent) -> None:
        """The job gets there while its agent does as it is told; within a few turns."""
        for _ in range(10):
            await self.talk(agent, RankState.RUNNING)
            await self.step(1.0)
            if (await self.job(job_id)).state is state:
                return
        job = await self.job(job_id)
        raise AssertionError(f"the healthy job is {job.state}, not {state}: {job.pending}")
