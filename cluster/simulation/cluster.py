"""A simulated cluster: its agents, the gangs of their ranks, and the faults that come over them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx
import msgspec

from paceline.cluster.protocol import JOIN_PATH, GenerationKey, JoinReply, JoinRequest
from paceline.cluster.simulation.agent import SimulatedAgent
from paceline.cluster.simulation.clock import SimulatedClock
from paceline.cluster.simulation.faults import ClusterFault, FaultRates, WishedFault
from paceline.cluster.simulation.gang import Gang, GangSettings
from paceline.cluster.simulation.machines import SimulatedMachine
from paceline.monitoring.backoff import Backoff
from paceline.training.errors import UnreadableSpecError
from paceline.training.link import RankPlace
from paceline.training.spec.stored import StoredSpec

SECONDS_PER_HOUR = 3600.0
#: Modelled seconds for which a node is away: to be repaired, or because its network is.
REPAIR_SECONDS, SILENT_SECONDS = 600.0, 60.0
#: By the clock, whatever the speedup: shorter ones nobody would see.
LEAST_REPAIR_SECONDS, LEAST_SILENT_SECONDS = 45.0, 6.0
JOINS_AT_ONCE = 8
JOIN_SECONDS, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 60.0, 0.1, 1.0
#: Between the connections of agents, so that a coordinator is not met by all at one moment.
SECONDS_BETWEEN_CONNECTIONS = 0.005

log = logging.getLogger(__name__)


class JoinFailedError(Exception):
    """A simulated node that the coordinator does not let in."""


@dataclass(eq=False)
class SimulatedCluster:
    """All simulated nodes of one process. `run` connects them; `credentials` by node name."""

    server: str
    settings: GangSettings
    rates: FaultRates = field(default_factory=FaultRates)
    agents: list[SimulatedAgent] = field(default_factory=list)
    _gangs: dict[GenerationKey, Gang] = field(default_factory=dict)
    _faults: dict[str, set[WishedFault]] = field(default_factory=dict)

    @property
    def clock(self) -> SimulatedClock:
        return self.settings.clock

    @property
    def gangs(self) -> Sequence[Gang]:
        """The gangs at work."""
        return [gang for gang in self._gangs.values() if gang.running]

    # -- agent.Gangs

    def of(self, world: RankPlace, spec: StoredSpec) -> Gang:
        """The gang in which this is a place. Raises UnreadableSpecError."""
        key = GenerationKey(world.job_id, world.generation)
        if key not in self._gangs:
            if spec.readable is None:
                raise UnreadableSpecError(f"this Paceline cannot read the job's spec: {spec.why_unreadable}")
            had = self._faults.setdefault(world.job_id, set())
            self._gangs[key] = Gang(key, spec.readable, world.world_size, self.settings, had)
        return self._gangs[key]

    def forget(self, key: GenerationKey) -> None:
        gang = self._gangs.get(key)
        if gang is not None and not gang.running and all(rank.process.gang is not gang for rank in gang.called.values()):
            del self._gangs[key]

    # -- running

    def add(self, machine: SimulatedMachine, credential: str) -> SimulatedAgent:
        """Add a node that has joined already."""
        agent = SimulatedAgent(machine, self.server, credential, self, self.settings.seed)
        self.agents.append(agent)
        return agent

    async def run(self) -> None:
        """Run all agents until this is cancelled, or the coordinator has removed all nodes."""
        async with asyncio.TaskGroup() as tasks:
            faults = tasks.create_task(self._let_faults_come(), name="faults")
            agents = []
            for agent in self.agents:
                agents.append(tasks.create_task(agent.run(), name=agent.name))
                await asyncio.sleep(SECONDS_BETWEEN_CONNECTIONS)
            await asyncio.wait(agents)
            faults.cancel()

    async def leave(self) -> None:
        """End all ranks, and tell the coordinator."""
        await asyncio.gather(*(agent.leave() for agent in self.agents if not agent.dead))

    # -- faults

    async def _let_faults_come(self) -> None:
        drawn = random.Random(f"{self.settings.seed}/faults")
        for hours, kind in self.rates.arrivals(drawn):
            await self.clock.sleep(hours * SECONDS_PER_HOUR)
            self.strike(kind, drawn)

    def strike(self, kind: ClusterFault, drawn: random.Random) -> None:
        """Let one fault hit a rank or node. Without one that it could hit, nothing happens."""
        gangs = [gang for gang in self.gangs if kind != "hang" or gang.world_size > 1]
        nodes = [agent for agent in self.agents if agent.is_connected]
        if kind in ("crash", "hang") and gangs:
            gang = drawn.choices(gangs, [gang.world_size for gang in gangs])[0]
            number = drawn.randrange(gang.world_size)
            log.info("simulated fault: %s of rank %d of job %s", kind, number, gang.key.job_id)
            gang.crash(number) if kind == "crash" else gang.hang(number)
        elif kind in ("node", "silence") and nodes:
            agent = drawn.choice(nodes)
            log.info("simulated fault: %s of node %s", kind, agent.name)
            self._take_away(agent, kind)

    def _take_away(self, agent: SimulatedAgent, kind: ClusterFault) -> None:
        loop = asyncio.get_running_loop()
        if kind == "node":
            agent.die()
            loop.call_later(max(LEAST_REPAIR_SECONDS, self.clock.seconds(REPAIR_SECONDS)), agent.boot)
        else:
            agent.fall_silent()
            loop.call_later(max(LEAST_SILENT_SECONDS, self.clock.seconds(SILENT_SECONDS)), agent.be_heard)


async def join_all(server: str, tokens: Mapping[str, str]) -> dict[str, str]:
    """Join nodes, each with a token of its own. `tokens`, and the credentials that are returned, by node name. Raises JoinFailedError."""
    turns = asyncio.Semaphore(JOINS_AT_ONCE)
    async with httpx.AsyncClient(base_url=server, timeout=JOIN_SECONDS) as http:  # a token is good once: its answer is waited for

        async def join(name: str, token: str) -> tuple[str, str]:
            async with turns:
                return name, await _join(http, name, token)

        return dict(await asyncio.gather(*(join(name, token) for name, token in tokens.items())))


async def _join(http: httpx.AsyncClient, name: str, token: str) -> str:
    backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    deadline = asyncio.get_running_loop().time() + JOIN_SECONDS
    body = msgspec.json.encode(JoinRequest(token=token, name=name))
    while True:
        try:
            answer = await http.post(JOIN_PATH, content=body, headers={"Content-Type": "application/json"})
        except httpx.TransportError as error:
            if asyncio.get_running_loop().time() > deadline:
                raise JoinFailedError(f"{http.base_url} cannot be reached for {JOIN_SECONDS:g} s: {error}") from error
            await backoff.pause()
            continue
        if answer.status_code != 201:
            raise JoinFailedError(f"{http.base_url} refused to let node {name} join: {answer.text[:300]}")
        return msgspec.json.decode(answer.content, type=JoinReply).credential
