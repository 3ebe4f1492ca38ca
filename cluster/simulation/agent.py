"""A simulated agent: it speaks the real protocol over real sockets, decides by the real `reconcile`, and its ranks are on paper."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable

import httpx

from paceline.cluster.agent.client import CoordinatorChannel
from paceline.cluster.agent.errors import ChannelRefusedError
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.ranks.reconcile import observe, reconcile
from paceline.cluster.agent.reading_recorder import ReadingRecorder
from paceline.cluster.agent.upload.delivery import KEPT_CONNECTIONS
from paceline.cluster.agent.upload.readings_uploader import ReadingsUploader
from paceline.cluster.protocol import (
    PROTOCOL_VERSION,
    AgentHello,
    Desired,
    GpuSample,
    Heartbeat,
    HostSample,
    Leaving,
    Observed,
    OpenExec,
    Welcome,
)
from paceline.cluster.simulation import readings
from paceline.cluster.simulation.kept_readings import KeptReadings
from paceline.cluster.simulation.machines import SimulatedMachine
from paceline.cluster.simulation.node_ranks import Gangs, SimulatedNodeRanks
from paceline.cluster.simulation.ranks import SimulatedRank
from paceline.monitoring.readings import Reading, values_of
from paceline.version import version

TICK_SECONDS = 0.5

log = logging.getLogger(__name__)


@functools.cache
def _trusted_authorities() -> ssl.SSLContext:
    """The certificate authorities of this machine, read once: a client that is told nothing reads them all again."""
    return httpx.create_ssl_context()


class SimulatedAgent:
    """One node. `run` connects it and lasts until the coordinator removes it, or it is cancelled."""

    def __init__(self, machine: SimulatedMachine, server: str, credential: str, gangs: Gangs, seed: int) -> None:
        self.machine = machine
        headers = {"Authorization": f"Bearer {credential}"}
        self._http = httpx.AsyncClient(base_url=server, headers=headers, verify=_trusted_authorities(), limits=KEPT_CONNECTIONS)
        self._server, self._credential = server.replace("http", "ws", 1), credential
        self._changed = asyncio.Event()
        self._ranks = SimulatedNodeRanks(machine.name, self._http, gangs, self._changed.set)
        kept = KeptReadings()
        self._reading_uploads = ReadingsUploader(self._http, kept)
        self._readings = ReadingRecorder(self._take_reading, kept, self._reading_uploads.nudge, Isolation())
        self._channel = self._new_channel()
        self._connections: list[asyncio.Task[None]] = []  # what ends where the network does
        self._desired: Desired | None = None
        self._boot_id = uuid.uuid4().hex
        self._heartbeat_seconds = self._observe_seconds = 5.0
        self._welcomed = asyncio.Event()
        self._removed = asyncio.Event()
        self._drawn = random.Random(f"{seed}/{machine.name}")
        self._last: tuple[Observed | None, float] = (None, 0.0)
        self.dead = False

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def is_connected(self) -> bool:
        return self._channel.is_connected

    @property
    def members(self) -> list[SimulatedRank]:
        """The ranks here that are at work in a gang."""
        return self._ranks.members

    async def run(self) -> None:
        """Run until the node is removed, or until this is cancelled."""
        works = [self._reconcile_forever, self._beat_forever, self._ranks.uploader.run, self._readings.run, self._removed.wait]
        self._connect()
        tasks = [asyncio.ensure_future(_awaited(work)) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            ending = [*tasks, *self._connections]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            await self._http.aclose()

    async def leave(self) -> None:
        """End everything here and say so, as an agent does that is told to end."""
        await self._channel.send(Leaving())
        self._ranks.kill_all(ordered=True, signal="SIGTERM")
        await self._channel.send(self._observation())

    # -- faults

    def die(self) -> None:
        """Lose the machine: its agent, its network and all its processes, at one moment."""
        self.dead = True
        self._disconnect()
        self._ranks.kill_all(ordered=False, signal="SIGKILL")

    def boot(self) -> None:
        """Bring the machine back, with what was on its disk."""
        self.dead, self._boot_id = False, uuid.uuid4().hex
        self._connect()

    def fall_silent(self) -> None:
        """Lose the way to the coordinator. The ranks go on."""
        self._disconnect()

    def be_heard(self) -> None:
        """Find the way to the coordinator again."""
        if not self.dead:
            self._connect()

    def _connect(self) -> None:
        self._disconnect()
        self._channel = self._new_channel()
        self._ranks.uploader.release()
        self._connections = [
            asyncio.create_task(self._stay_connected(), name=f"channel of {self.name}"),
            asyncio.create_task(self._reading_uploads.run(), name=f"readings of {self.name}"),
        ]

    def _disconnect(self) -> None:
        self._ranks.uploader.hold()
        for task in self._connections:
            task.cancel()
        self._connections = []

    def _new_channel(self) -> CoordinatorChannel:
        # Many agents in one process are late where one in its own is not.
        return CoordinatorChannel(self._server, self._credential, self, ping_timeout=None)

    async def _stay_connected(self) -> None:
        try:
            await self._channel.run()
        except ChannelRefusedError as refused:
            log.warning("%s: %s", self.name, refused)
            self._removed.set()

    # -- the coordinator (agent.client.AgentLoop)

    def hello(self) -> AgentHello:
        return AgentHello(
            protocol=PROTOCOL_VERSION,
            agent_version=version(),
            boot_id=self._boot_id,
            inventory=self.machine.inventory(version()),
            address="127.0.0.1",
            store_port=1,
        )

    def may_give_up(self) -> bool:
        return True

    async def on_welcome(self, welcome: Welcome) -> None:
        self._heartbeat_seconds, self._observe_seconds = welcome.heartbeat_seconds, welcome.observe_seconds
        self._last = (None, 0.0)
        self._welcomed.set()
        self._changed.set()

    async def on_open_exec(self, order: OpenExec) -> None:
        raise AssertionError(f"a simulated node says that it runs no commands, and was asked for {order.id}")

    async def on_desired(self, desired: Desired) -> None:
        self._desired = desired
        self._changed.set()
        if desired.leave:
            self._removed.set()

    async def _beat_forever(self) -> None:
        await self._welcomed.wait()
        while True:
            await self._channel.send(self.heartbeat())
            await asyncio.sleep(self._heartbeat_seconds * self._drawn.uniform(0.95, 1.05))

    def heartbeat(self) -> Heartbeat:
        """The readings of this moment."""
        host, cards = self._measure()
        return Heartbeat(time=time.time(), host=host, gpus=cards, backlog_records=self._ranks.uploader.backlog())

    def _take_reading(self) -> Reading:
        """What is recorded of this second: nothing of a machine that is off."""
        return Reading(time.time(), {} if self.dead else values_of(*self._measure()))

    def _measure(self) -> tuple[HostSample, tuple[GpuSample, ...]]:
        loads = self._ranks.loads()
        return readings.host_sample(self.machine, loads, self._drawn), readings.gpu_samples(self.machine, loads, self._drawn)

    # -- reconciling and reporting, as `agent.loop`

    async def _reconcile_forever(self) -> None:
        while True:
            if not self.dead:
                self._step_once()
                await self._report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()

    def _step_once(self) -> None:
        self._ranks.note_drained()
        if self._desired is not None:
            for action in reconcile(self._desired, self._ranks.records, time.time()):
                self._ranks.carry_out(action)

    def _observation(self) -> Observed:
        desired = self._desired or Desired(revision=0, assignments=())
        doomed = {checkpoint.id for checkpoint in desired.delete_checkpoints}
        return observe(desired, self._ranks.records, tuple(sorted(self._ranks.deleted & doomed)), time.monotonic())

    async def _report(self) -> None:
        """Report a change at once; mere progress, or nothing new, every `observe_seconds`."""
        last, at = self._last
        observed, now = self._observation(), time.monotonic()
        due = now - at >= self._observe_seconds
        if (due or last is None or _essence(observed) != _essence(last)) and await self._channel.send(observed):
            self._last = (observed, now)


def _essence(observed: Observed) -> object:
    """The part of a report that makes it urgent: everything but progress."""
    states = [
        (each.job_id, each.generation, rank.rank, rank.state, rank.drained, rank.failure, rank.stall, rank.suspended, rank.stacks)
        for each in observed.assignments
        for rank in each.ranks
    ]
    return (observed.revision, states, observed.deleted_checkpoints)


async def _awaited(work: Callable[[], Awaitable[object]]) -> None:
    await work()
