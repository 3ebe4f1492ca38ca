"""An agent without processes: it speaks the real protocol to the real app, and its ranks do what a test tells them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx
import msgspec
from fastapi import FastAPI

from paceline.cluster.protocol import (
    CHANNEL_PATH,
    PROTOCOL_VERSION,
    UPLOAD_PATH,
    AgentHello,
    ConnectionRefused,
    Desired,
    DesiredAssignment,
    Heartbeat,
    Inventory,
    Leaving,
    Notice,
    Observed,
    ObservedAssignment,
    ObservedRank,
    StacksRequest,
    ToAgent,
    Welcome,
    decode_to_agent,
)
from paceline.cluster.stacks import StackSample
from paceline.cluster.states import RankState
from paceline.monitoring.points import MetricRecord, RankBatch, RankEvent, Upload
from paceline.monitoring.samples import HostSample
from paceline.training.link import FailureReport, RankPlace, Stalled
from tests.asgi_socket import AsgiSocket, SocketClosedError
from tests.factories import Value
from tests.simulated_rank import SimulatedRank

START_TIME = 1_795_000_000.0
Place = tuple[str, int, int]


@dataclass
class SimulatedAgent:
    app: FastAPI
    credential: str
    slots: int = 2
    device: Literal["cpu", "cuda"] = "cpu"
    boot_id: str = "boot-1"
    protocol: int = PROTOCOL_VERSION
    disk: str | None = None  # of its default folder for checkpoints
    starts_ranks: bool = True  # else it can start none
    obeys_stop: bool = True
    parks_at_once: bool = True  # a rank without a place is warm as soon as it is started; else `warm_up`
    crosses_at_once: bool = True  # the step boundary of a voluntary change comes at once; else `cross`
    reports_joined: bool = True  # ranks that take a place in a newer generation find the others there
    drains_at_once: bool = True  # what an exited rank has left is acknowledged
    seen: StackSample | None = None  # of every rank here, whenever stacks are asked for; None: it does not answer
    looks: list[str] = field(default_factory=list)  # requests for stacks
    ranks: dict[Place, SimulatedRank] = field(default_factory=dict)
    desired: Desired | None = None
    welcome: Welcome | None = None
    refused: ConnectionRefused | None = None
    closed_with: int | None = None
    started: list[Place] = field(default_factory=list)
    first_start: asyncio.Event = field(default_factory=asyncio.Event)
    deleted: list[str] = field(default_factory=list)
    _socket: AsgiSocket | None = None
    _reader: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        self._socket = AsgiSocket(self.app, CHANNEL_PATH, {"Authorization": f"Bearer {self.credential}"})
        await self._socket.open()
        inventory = Inventory(
            slots=self.slots,
            device=self.device,
            cpu_count=self.slots,
            memory_bytes=1 << 30,
            hostname="host",
            platform="test",
            versions={"python": "3.11"},
            checkpoint_disk=self.disk,
        )
        await self._say(
            AgentHello(
                protocol=self.protocol, agent_version="0", boot_id=self.boot_id, inventory=inventory, address="10.0.0.1", store_port=29500
            )
        )
        self._reader = asyncio.create_task(self._read())

    @property
    def connected(self) -> bool:
        return self._reader is not None and not self._reader.done()

    async def disconnect(self, code: int = 1001) -> None:
        await self._stop_reading()
        if self._socket is not None:
            await self._socket.close(code)

    async def lose_coordinator(self, successor: FastAPI) -> None:
        """Its process is gone between two instructions; another one has taken its place."""
        await self._stop_reading()
        if self._socket is not None:
            await self._socket.vanish()
        self.app = successor

    async def heartbeat(self, *, time: float = START_TIME) -> None:
        host = HostSample(
            cpu_percent=50.0,
            memory_used_bytes=1 << 20,
            memory_total_bytes=1 << 30,
            disk_used_bytes=1,
            disk_total_bytes=2,
            network_sent_bytes_per_second=0.0,
            network_received_bytes_per_second=0.0,
            load_1m=0.5,
        )
        await self._say(Heartbeat(time=time, host=host, gpu_error="no GPU", backlog_records=7))

    async def observe(self) -> None:
        gangs: dict[tuple[str, int], list[ObservedRank]] = {}
        for (job_id, generation, _), rank in self.ranks.items():
            gangs.setdefault((job_id, generation), []).append(rank.observed(drained=self.drains_at_once))
        assignments = tuple(ObservedAssignment(job_id=job, generation=number, ranks=tuple(found)) for (job, number), found in gangs.items())
        revision = self.desired.revision if self.desired else 0
        await self._say(Observed(revision=revision, assignments=assignments, deleted_checkpoints=tuple(self.deleted)))

    async def step(self, job_id: str, step: int) -> None:
        for rank in self._alive(job_id):
            rank.step = step
        await self.observe()

    async def crash(
        self,
        job_id: str,
        rank: int,
        *,
        kind: Any = "exception",
        message: str = "boom",
        exception: str = "RuntimeError",
        ordered: bool = False,
    ) -> None:
        """One rank of the newest generation dies of its own, or because it was told to (`ordered`); the others, wherever they are, stay."""
        (victim,) = [each for each in self._alive(job_id) if each.world.rank == rank]
        victim.failure = FailureReport(
            kind=kind, rank=rank, message=message, exception=exception, step=victim.step, time=1.0, exit_code=1, ordered=ordered
        )
        self._exit(victim, "failed", exit_code=1)
        await self.observe()

    async def lose_peer(self, job_id: str) -> None:
        """Every rank here says that a connection to another one broke, and waits for its next place."""
        for rank in self._alive(job_id):
            rank.failure = FailureReport(kind="peer_lost", rank=rank.world.rank, message="Connection closed by peer", time=2.0)
        await self.observe()

    async def suspend(self, job_id: str, *, suspended: bool = True) -> None:
        """Every rank here is stopped by a signal, or continued."""
        for rank in self._alive(job_id):
            rank.suspended = suspended
        await self.observe()

    async def stall(self, job_id: str, stall: Stalled | None) -> None:
        """Every rank here says this of itself; None: it goes on."""
        for rank in self._alive(job_id):
            rank.stall = stall
        await self.observe()

    async def fall_quiet(self, job_id: str, since: float | None) -> None:
        """Every rank here says nothing since then; None: it speaks again."""
        for rank in self._alive(job_id):
            rank.quiet_since = since
        await self.observe()

    async def warm_up(self, job_id: str) -> None:
        for rank in self._alive(job_id):
            if rank.world.parked:
                rank.state = RankState.PARKED
        await self.observe()

    async def cross(self, job_id: str) -> None:
        """The gang has agreed on the step: from now on ranks take their places in the new generation, and released ones leave."""
        self.crosses_at_once = True
        assert self.desired is not None
        await self._obey(self.desired)

    async def pause_itself(self, job_id: str, step: int) -> None:
        """The job's spec has it save and exit after this step."""
        await self.step(job_id, step)
        await self.save_checkpoint(job_id, step)
        for rank in self._alive(job_id):
            self._exit(rank, "paused", exit_code=0)
        await self.observe()

    async def complete(self, job_id: str) -> None:
        for rank in self._alive(job_id):
            self._exit(rank, "completed", exit_code=0)
        await self.observe()

    async def notice(self, seconds: float, *, returns: bool = False, reason: str = "its time limit ends") -> None:
        """Its machine will be taken away in so many seconds."""
        await self._say(Notice(ends_at=time.time() + seconds, reason=reason, returns=returns))

    async def leave(self) -> None:
        """It is told to end: it says so, ends its ranks, and tells how they ended."""
        await self._say(Leaving())
        for rank in [rank for rank in self.ranks.values() if rank.state is not RankState.EXITED]:
            number = rank.world.rank
            rank.failure = FailureReport(kind="signal", rank=number, message="killed by SIGTERM", signal="SIGTERM", ordered=True, time=1.0)
            self._exit(rank, "failed", exit_code=None)
        await self.observe()

    async def forget_everything(self) -> None:
        """As after the machine's disk was wiped."""
        self.ranks.clear()
        await self.observe()

    async def save_checkpoint(self, job_id: str, step: int, *, loss: float = 1.0, generation: int | None = None) -> str:
        """Rank 0 of the job tells of a checkpoint; its folder."""
        rank = next(
            each for (job, number, _), each in self.ranks.items() if job == job_id and number == (generation or self.generation(job_id))
        )
        folder = f"/checkpoints/{job_id}/step-{step}.g{rank.world.generation}"
        data = {"directory": folder, "step": step, "bytes": 1000, "manifest_sha256": "0" * 64, "metrics": {"eval_loss": loss}}
        await self.tell(rank, "checkpoint_committed", data)
        return folder

    async def record(self, job_id: str, step: int, **values: Value) -> None:
        """Rank 0 of the job's newest generation records a point."""
        rank = next(each for each in self._alive(job_id) if each.world.rank == 0)
        rank.records += 1
        record = MetricRecord(seq=rank.records, step=step, time=START_TIME + step, values=dict(values))
        await self._upload(rank, metrics=[record])

    async def tell(self, rank: SimulatedRank, kind: Any, data: dict[str, Any]) -> None:
        rank.events += 1
        await self._upload(rank, events=[RankEvent(seq=rank.events, time=START_TIME + rank.events, kind=kind, data=data)])

    async def _upload(self, rank: SimulatedRank, **content: Any) -> None:
        batch = RankBatch(job_id=rank.world.job_id, generation=rank.world.generation, rank=rank.world.rank, **content)
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            body = msgspec.json.encode(Upload(batches=[batch]))
            answer = await client.post(UPLOAD_PATH, content=body, headers={"Authorization": f"Bearer {self.credential}"})
        assert answer.status_code == 200, answer.text

    def trains(self, job_id: str) -> bool:
        """Whether ranks of the job live here, whatever the coordinator has heard of them."""
        return any(job == job_id for job, _, _ in self.ranks) and bool(self._alive(job_id))

    def generation(self, job_id: str) -> int:
        return max(number for job, number, _ in self.ranks if job == job_id)

    def worlds(self, job_id: str) -> list[RankPlace]:
        assert self.desired is not None
        return [world for assignment in self.desired.assignments if assignment.job_id == job_id for world in assignment.worlds]

    def action(self, job_id: str, generation: int | None = None) -> str | None:
        """What ranks of this job are to do here, by default those of the newest generation."""
        mine = [each for each in (self.desired.assignments if self.desired else ()) if each.job_id == job_id]
        found = [each.action for each in mine if generation in (None, each.generation)]
        return found[-1] if found else None

    def _alive(self, job_id: str) -> list[SimulatedRank]:
        newest = self.generation(job_id)
        return [
            rank
            for (job, number, _), rank in self.ranks.items()
            if job == job_id and number == newest and rank.state is not RankState.EXITED
        ]

    async def _say(self, message: msgspec.Struct) -> None:
        assert self._socket is not None
        await self._socket.send(msgspec.json.encode(message).decode())

    async def _read(self) -> None:
        assert self._socket is not None
        while True:
            try:
                message = decode_to_agent(await self._socket.receive())
            except TimeoutError:
                continue
            except SocketClosedError as closed:
                self.closed_with = closed.code
                return
            await self._heed(message)

    async def _heed(self, message: ToAgent) -> None:
        match message:
            case Welcome():
                self.welcome = message
            case ConnectionRefused():
                self.refused = message
            case Desired():
                self.desired = message
                await self._obey(message)

    async def _obey(self, desired: Desired) -> None:
        wanted = {(each.job_id, each.generation, world.rank): (each, world) for each in desired.assignments for world in each.worlds}
        self._move(wanted)
        self.ranks = {place: rank for place, rank in self.ranks.items() if place in wanted}
        for place, (assignment, world) in wanted.items():
            await self._steer(place, assignment, world)
            self._answer(self.ranks.get(place), assignment.stacks)
        self.deleted = [each.id for each in desired.delete_checkpoints]
        await self.observe()

    def _move(self, wanted: dict[Place, tuple[DesiredAssignment, RankPlace]]) -> None:
        """Living processes take the places that were meant for them."""
        for place, (_, world) in wanted.items():
            mine = [rank for rank in self.ranks.values() if rank.world.job_id == world.job_id and rank.world.process == world.process]
            if world.birth is not None and place not in self.ranks and mine:
                self.ranks[place] = replace(
                    mine[-1], world=world, failure=None, stall=None, events=0, state=self._state_on_arrival(mine[-1], world)
                )

    def _state_on_arrival(self, rank: SimulatedRank, world: RankPlace) -> RankState:
        if rank.state is RankState.EXITED or (world.parked and rank.world.parked):
            return rank.state
        if world.parked:
            return self._state_of_parked
        if world.at_boundary and not self.crosses_at_once:
            return RankState.ASSIGNED
        return RankState.RUNNING if self.reports_joined else RankState.STARTING

    @property
    def _state_of_parked(self) -> RankState:
        return RankState.PARKED if self.parks_at_once else RankState.STARTING

    async def _steer(self, place: Place, assignment: DesiredAssignment, world: RankPlace) -> None:
        rank = self.ranks.get(place)
        if rank is None:
            if assignment.action == "run":
                self.started.append(place)
                self.first_start.set()
                state = self._state_of_parked if world.parked else RankState.RUNNING
                self.ranks[place] = SimulatedRank(world, pid=1000 + len(self.started), state=state)
                if not self.starts_ranks:
                    self._refuse(self.ranks[place])
        elif rank.state is RankState.EXITED:
            return
        elif assignment.action == "run" and rank.state is RankState.ASSIGNED and self.crosses_at_once:
            rank.state = RankState.RUNNING
        elif assignment.action == "release" and self.crosses_at_once:
            self._exit(rank, "released", exit_code=0)
        elif assignment.action == "pause":
            if world.rank == 0:
                await self.save_checkpoint(world.job_id, rank.step, generation=world.generation)
            self._exit(rank, "paused", exit_code=0)
        elif assignment.action == "stop" and self.obeys_stop:
            self._exit(rank, "failed", signal="SIGTERM")

    def _refuse(self, rank: SimulatedRank) -> None:
        """As an agent on a full disk."""
        message = "cannot start: [Errno 28] No space left on device"
        rank.pid, rank.failure = None, FailureReport(kind="exit", rank=rank.world.rank, message=message, time=1.0)
        self._exit(rank, "failed")

    def _answer(self, rank: SimulatedRank | None, request: StacksRequest | None) -> None:
        """As long as it is asked."""
        asked = rank is not None and request is not None and rank.world.rank in request.ranks
        if request is not None and request.id not in self.looks and asked:
            self.looks.append(request.id)
        if rank is not None:
            rank.stacks = msgspec.structs.replace(self.seen, id=request.id) if asked and request is not None and self.seen else None

    @staticmethod
    def _exit(rank: SimulatedRank, outcome: Any, *, exit_code: int | None = None, signal: str | None = None) -> None:
        rank.state, rank.outcome, rank.exit_code, rank.signal = RankState.EXITED, outcome, exit_code, signal

    async def _stop_reading(self) -> None:
        while (
            self._reader is not None and not self._reader.done()
        ):  # `wait_for` of Python 3.11 swallows a cancellation that comes with a result
            self._reader.cancel()
            await asyncio.wait([self._reader], timeout=1.0)
