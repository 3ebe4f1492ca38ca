"""Many agents without processes, in one process of their own, over the real protocol: what a coordinator with that many nodes hears.

What a machine tells of itself is that of `paceline.cluster.simulation`; whose ranks, gangs and records are left out here, so that a thousand agents
fit into one process. They send what real agents send, as often: a heartbeat with the readings of eight GPUs, an observation at each change and every few
seconds without one. A rank runs at once and ends well after `--lifetime` seconds.

    python -m scripts.bench.edges.load.agents URL CREDENTIALS.json [--lifetime S]     prints one line of JSON a second: Told
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from paceline.cluster.agent.client import MAX_MESSAGE_BYTES, PING_SECONDS
from paceline.cluster.protocol import (
    CHANNEL_PATH,
    PROTOCOL_VERSION,
    AgentHello,
    ConnectionRefused,
    Desired,
    FromAgent,
    Heartbeat,
    Observed,
    ObservedAssignment,
    ObservedRank,
    Welcome,
    decode_to_agent,
)
from paceline.cluster.simulation.machines import SimulatedMachine
from paceline.cluster.simulation.readings import SlotLoad, gpu_samples, host_sample
from paceline.cluster.states import RankState
from paceline.db.base import new_id

SLOTS = 8
SECONDS_BETWEEN_CONNECTIONS, OPEN_SECONDS = 0.01, 60.0
Place = tuple[str, int, int]


class Told(msgspec.Struct):
    connected: int = 0
    reconnects: int = 0
    started: int = 0
    completed: int = 0
    heartbeats: int = 0
    closed: dict[str, int] = {}


@dataclass
class Rank:
    slot: int
    pid: int
    ends_at: float
    step: int = 0
    ended: str | None = None

    def observed(self, rank: int) -> ObservedRank:
        if self.ended is None:
            return ObservedRank(rank=rank, slot=self.slot, state=RankState.RUNNING, pid=self.pid, step=self.step, progress_age=0.0)
        return ObservedRank(
            rank=rank, slot=self.slot, state=RankState.EXITED, pid=self.pid, step=self.step, outcome="completed", exit_code=0, drained=True
        )


@dataclass
class Agent:
    url: str
    credential: str
    name: str
    told: Told
    lifetime: float
    ranks: dict[Place, Rank] = field(default_factory=dict)
    revision: int = 0
    boot_id: str = field(default_factory=new_id)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0

    async def run(self) -> None:
        while True:
            try:
                await self._converse()
            except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake) as error:
                code = error.rcvd.code if isinstance(error, ConnectionClosed) and error.rcvd else ""
                self.told.closed = dict(Counter(self.told.closed) + Counter([f"{type(error).__name__} {code}"]))
            await asyncio.sleep(random.uniform(0.5, 3.0))

    async def _converse(self) -> None:
        headers = {"Authorization": f"Bearer {self.credential}"}
        async with connect(
            self.url.replace("http", "ws", 1) + CHANNEL_PATH,
            additional_headers=headers,
            open_timeout=OPEN_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=None,  # a thousand agents in one process are late where one in its own is not
            max_size=MAX_MESSAGE_BYTES,
        ) as socket:
            await _send(socket, self._hello())
            welcome = decode_to_agent(await socket.recv())
            if not isinstance(welcome, Welcome):
                raise ConnectionClosed(None, None)
            self.connections += 1
            self.told.connected += 1
            self.told.reconnects += self.connections > 1
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._beat(socket, welcome.heartbeat_seconds))
                    tasks.create_task(self._report(socket, welcome.observe_seconds))
                    tasks.create_task(self._listen(socket))
            except* ConnectionClosed as ended:
                raise ended.exceptions[0] from None
            finally:
                self.told.connected -= 1

    def _hello(self) -> AgentHello:
        inventory = SimulatedMachine(self.name, SLOTS).inventory("0")
        return AgentHello(
            protocol=PROTOCOL_VERSION, agent_version="0", boot_id=self.boot_id, inventory=inventory, address="127.0.0.1", store_port=29500
        )

    async def _beat(self, socket: ClientConnection, seconds: float) -> None:
        await asyncio.sleep(random.uniform(0, seconds))
        sample = heartbeat(self.name)
        while True:
            await _send(socket, msgspec.structs.replace(sample, time=time.time()))
            self.told.heartbeats += 1
            await asyncio.sleep(seconds)

    async def _report(self, socket: ClientConnection, seconds: float) -> None:
        while True:
            self._work()
            await _send(socket, self._observed())
            due = [rank.ends_at - time.monotonic() for rank in self.ranks.values() if rank.ended is None]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), max(0.02, min([seconds, *due])))
            self.changed.clear()

    def _work(self) -> None:
        for rank in self.ranks.values():
            rank.step += rank.ended is None
            if rank.ended is None and time.monotonic() >= rank.ends_at:
                rank.ended = "completed"
                self.told.completed += 1

    def _observed(self) -> Observed:
        gangs: dict[tuple[str, int], list[ObservedRank]] = {}
        for (job_id, generation, number), rank in self.ranks.items():
            gangs.setdefault((job_id, generation), []).append(rank.observed(number))
        assignments = tuple(ObservedAssignment(job_id=job, generation=number, ranks=tuple(found)) for (job, number), found in gangs.items())
        return Observed(revision=self.revision, assignments=assignments)

    async def _listen(self, socket: ClientConnection) -> None:
        async for text in socket:
            message = decode_to_agent(text)
            if isinstance(message, ConnectionRefused):
                await socket.close()
            elif isinstance(message, Desired):
                self._obey(message)

    def _obey(self, desired: Desired) -> None:
        self.revision = desired.revision
        wanted = {(each.job_id, each.generation, world.rank): (each, world) for each in desired.assignments for world in each.worlds}
        self.ranks = {place: rank for place, rank in self.ranks.items() if place in wanted}
        for place, (assignment, world) in wanted.items():
            if place not in self.ranks and assignment.action == "run":
                self.told.started += 1
                self.ranks[place] = Rank(world.slot, 1000 + self.told.started, time.monotonic() + self.lifetime)
            elif place in self.ranks and assignment.action != "run":
                self.ranks[place].ended = assignment.action
        self.changed.set()


def heartbeat(name: str) -> Heartbeat:
    """The readings of a machine whose cards are all at work."""
    machine, drawn = SimulatedMachine(name, SLOTS), random.Random(name)
    loads = {slot: SlotLoad(drawn.random(), drawn.randrange(machine.card.memory_bytes)) for slot in range(SLOTS)}
    return Heartbeat(time=time.time(), host=host_sample(machine, loads, drawn), gpus=gpu_samples(machine, loads, drawn))


async def _send(socket: ClientConnection, message: FromAgent) -> None:
    await socket.send(msgspec.json.encode(message).decode())


async def run(url: str, credentials: list[str], lifetime: float) -> None:
    told = Told()
    tasks = []
    for number, credential in enumerate(credentials):
        tasks.append(asyncio.create_task(Agent(url, credential, f"node-{number:05d}", told, lifetime).run()))
        await asyncio.sleep(SECONDS_BETWEEN_CONNECTIONS)
        if number % 100 == 0:
            print(msgspec.json.encode(told).decode(), flush=True)
    while True:
        print(msgspec.json.encode(told).decode(), flush=True)
        await asyncio.sleep(1.0 if told.started == told.completed else 0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("credentials", type=Path)
    parser.add_argument("--lifetime", type=float, default=1.0)
    arguments = parser.parse_args()
    uvloop.run(run(arguments.url, msgspec.json.decode(arguments.credentials.read_bytes()), arguments.lifetime))


if __name__ == "__main__":
    main()
