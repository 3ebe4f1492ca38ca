"""Everything that happens to the ranks of one simulated node: the actions of the real `reconcile`, carried out on paper."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

import httpx
import msgspec

from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.cluster.agent.ranks.reconcile import (
    CallRank,
    DeleteCheckpoint,
    DropStacks,
    ForgetRank,
    MarkRankExited,
    MoveRank,
    NodeAction,
    PauseRank,
    ProfileRank,
    ReadStacks,
    RecordGradients,
    ReleaseRank,
    StartRank,
    TerminateRank,
)
from paceline.cluster.protocol import ARTIFACTS_PATH, GenerationKey, RankKey
from paceline.cluster.simulation.clock import SimulatedClock
from paceline.cluster.simulation.gang import Gang
from paceline.cluster.simulation.outbox import OutboxUploader
from paceline.cluster.simulation.ranks import SimulatedProcess, SimulatedRank
from paceline.cluster.simulation.readings import SlotLoad
from paceline.cluster.simulation.step_times import typical_seconds
from paceline.cluster.stacks import MAIN_THREAD, ProcessStack, PythonFrame, StackSample, ThreadStack
from paceline.monitoring.artifacts import Offer, RankArtifact
from paceline.training.errors import UnreadableSpecError
from paceline.training.link import FailureReport, Parked, RankOrder, RankPlace
from paceline.training.spec.stored import StoredSpec

#: Modelled seconds from the order to start a process until its model is built, and until a process has heard SIGTERM.
BUILD_SECONDS, TERM_SECONDS = 5.0, 0.2
LEAST_BUILD_SECONDS = 0.1
FIRST_PID = 1000
#: The table wants a folder, and looks into it only for real processes.
NO_FOLDER = AgentFolder(Path("/nonexistent/simulated"))

log = logging.getLogger(__name__)


class Gangs(Protocol):
    """The gangs of all agents of a simulation."""

    @property
    def clock(self) -> SimulatedClock: ...

    def of(self, world: RankPlace, spec: StoredSpec) -> Gang:
        """The gang in which this is a place. Raises UnreadableSpecError."""

    def forget(self, key: GenerationKey) -> None:
        """Note that a place of this generation is forgotten."""


class SimulatedNodeRanks:
    """The ranks of one node. `changed` is called when there is something to report."""

    def __init__(self, node: str, http: httpx.AsyncClient, gangs: Gangs, changed: Callable[[], None]) -> None:
        self._node, self._http, self._gangs, self._changed = node, http, gangs, changed
        self._table = RankTable(NO_FOLDER)
        self.uploader = OutboxUploader(http, lambda _: changed())
        self._processes: dict[RankKey, SimulatedProcess] = {}  # by the key that they were started with
        self._places: dict[RankKey, SimulatedRank] = {}
        self._answered: set[tuple[str, int]] = set()  # requests for a trace or for gradients, by rank
        self._pids = FIRST_PID
        self.deleted: set[str] = set()  # ids of checkpoints

    @property
    def records(self) -> Mapping[RankKey, RankRecord]:
        """The ranks as a real agent keeps them, for `reconcile` and `observe`."""
        return self._table.ranks

    @property
    def members(self) -> list[SimulatedRank]:
        """The ranks here that are at work in a gang."""
        return [rank for rank in self._places.values() if rank.process.gang is not None and rank.process.place is rank]

    def loads(self) -> dict[int, SlotLoad]:
        """The load of each slot that is used."""
        return {rank.process.slot: _load_of(rank) for rank in self.members}

    def note_drained(self) -> None:
        """Mark the ranks that are gone, and of which the coordinator has everything."""
        for key, rank in list(self._table.ranks.items()):
            if rank.drained or rank.phase not in (RankPhase.EXITED, RankPhase.MOVED):
                continue
            place = self._places.get(key)
            if (place is None or not place.is_recording) and self.uploader.is_empty(key):
                self._table.change(key, drained=True)

    def kill_all(self, *, ordered: bool, signal: str) -> None:
        """End all processes at one moment. `ordered`: their agent was told to."""
        for rank in list(self._places.values()):
            if rank.process.place is rank and not rank.process.ended:
                _kill(rank, ordered=ordered, signal=signal)

    def carry_out(self, action: NodeAction) -> None:
        match action:
            case StartRank(world=world, spec=spec):
                self._start(world, spec)
            case MoveRank(key=key, world=world, spec=spec):
                self._move(key, world, spec)
            case MarkRankExited(key=old, world=world, spec=spec):
                self._table.mark_exited(old, _order(world, spec))
            case PauseRank(key=key):
                self._pause(self._places[key])
            case ReleaseRank(key=key):
                self._release(self._places[key])
            case TerminateRank(key=key):
                self._terminate(self._places[key])
            case ForgetRank(key=key):
                self._forget(key)
            case ProfileRank(key=key, request=request):
                self._answer(key, "trace", request.id, request.steps)
            case RecordGradients(key=key, request=request):
                self._answer(key, "gradients", request.id, 1)
            case ReadStacks(key=key, request=request_id):
                self._table.change(key, stacks=_stacks(request_id, self._places[key]))
            case DropStacks(key=key):
                self._table.change(key, stacks=None)
            case DeleteCheckpoint(checkpoint=checkpoint):
                self.deleted.add(checkpoint.id)
            case CallRank():
                pass  # it has heard it the first time

    def _start(self, world: RankPlace, spec: StoredSpec) -> None:
        self._pids += 1
        process = SimulatedProcess(pid=self._pids, node=self._node, slot=world.slot)
        key = self._table.add(_order(world, spec)).key
        self._table.change(key, phase=RankPhase.ALIVE, pid=process.pid)
        self._processes[RankKey.of_process(world)] = process
        rank = self._place(world, process)
        seconds = max(LEAST_BUILD_SECONDS, self._gangs.clock.seconds(BUILD_SECONDS))
        asyncio.get_running_loop().call_later(seconds, self._built, rank, spec)

    def _built(self, rank: SimulatedRank, spec: StoredSpec) -> None:
        if rank.process.ended or rank.process.place is not rank:
            return
        if rank.world.parked:
            rank.say(Parked())
        else:
            self._call(rank, spec)

    def _move(self, key: RankKey, world: RankPlace, spec: StoredSpec) -> None:
        process = self._processes[RankKey.of_process(world)]
        was_parked = self._table.ranks[key].parked
        self._table.move(key, _order(world, spec))
        rank = self._place(world, process)
        if not world.parked:
            self._call(rank, spec)
            return
        rank.enter()
        if was_parked:
            rank.say(Parked())

    def _call(self, rank: SimulatedRank, spec: StoredSpec) -> None:
        try:
            self._gangs.of(rank.world, spec).call(rank)
        except UnreadableSpecError as error:
            failure = FailureReport(kind="invalid_input", rank=rank.key.rank, message=str(error), time=time.time())
            rank.end("failed", exit_code=1, failure=failure)

    def _place(self, world: RankPlace, process: SimulatedProcess) -> SimulatedRank:
        key = RankKey.of(world)
        rank = SimulatedRank(key, world, process, self.uploader.follow(key), self._table, self._changed)
        self._places[key] = process.place = rank
        return rank

    def _pause(self, rank: SimulatedRank) -> None:
        gang = rank.process.gang
        if gang is not None:
            gang.pause(rank)
        elif self._table.ranks[rank.key].broken is None:
            rank.end("paused", exit_code=0)

    def _release(self, rank: SimulatedRank) -> None:
        rank.releasing = True
        if rank.process.gang is None or not rank.process.gang.running:
            rank.end("released", exit_code=0)

    def _terminate(self, rank: SimulatedRank) -> None:
        self._table.change(rank.key, stopping=True)
        seconds = self._gangs.clock.seconds(TERM_SECONDS)
        asyncio.get_running_loop().call_later(seconds, lambda: _kill(rank, ordered=True, signal="SIGTERM"))

    def _forget(self, key: RankKey) -> None:
        self.uploader.forget(key)
        self._table.forget(key)
        rank = self._places.pop(key, None)
        if rank is not None and rank.process.ended and rank.process.place is rank:
            self._processes.pop(RankKey.of_process(rank.world), None)
        self._gangs.forget(GenerationKey(key.job_id, key.generation))

    def _answer(self, key: RankKey, kind: Literal["trace", "gradients"], request: str, steps: int) -> None:
        """Answer a request for a trace or for gradients, once, with the reason why there is none."""
        if (request, key.rank) in self._answered:
            return
        self._answered.add((request, key.rank))
        step = self._places[key].process.step or 0
        artifact = RankArtifact(
            name=f"{kind}-{request}",
            kind=kind,
            first_step=step + 1,
            last_step=step + steps,
            time=time.time(),
            request=request,
            error="this rank is simulated: it computes nothing",
        )
        offer = Offer(job_id=key.job_id, generation=key.generation, rank=key.rank, artifact=artifact)
        task = asyncio.create_task(self._offer(offer))
        task.add_done_callback(lambda done: self._offered(done, request, key))

    async def _offer(self, offer: Offer) -> None:
        (await self._http.post(ARTIFACTS_PATH, content=msgspec.json.encode(offer))).raise_for_status()

    def _offered(self, done: asyncio.Task[None], request: str, key: RankKey) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            log.warning("%s: no answer to request %s, trying again: %s", self._node, request, error)
            self._answered.discard((request, key.rank))


def _kill(rank: SimulatedRank, *, ordered: bool, signal: str) -> None:
    """End a rank's process; its gang notices."""
    gang = rank.process.gang
    rank.kill(ordered=ordered, signal=signal)
    if gang is not None:
        gang.lose(rank)


def _order(world: RankPlace, spec: StoredSpec) -> RankOrder:
    return RankOrder(spec=spec, world=world, folder="", agent_socket="")


def _load_of(rank: SimulatedRank) -> SlotLoad:
    gang = rank.process.gang
    assert gang is not None  # a member's
    cost = gang.model.cost
    seconds = typical_seconds(cost)
    computing = cost.computing / seconds if gang.running else 0.0
    return SlotLoad(
        computing,
        cost.memory_bytes,
        sent_bytes_per_second=sum(cost.sent.values()) / seconds if gang.running else 0.0,
        leaves_node=gang.world_size > gang.model.slots_per_node,
        pid=rank.process.pid,
        slowness=gang.speeds[rank.key.rank] if gang.running else 1.0,
    )


def _stacks(request: str, rank: SimulatedRank) -> StackSample:
    """The stack of a process that does not exist: where a rank would be that does what this one does."""
    gang = rank.process.gang
    waits = (PythonFrame("all_reduce", "torch/distributed/distributed_c10d.py", 3010),)
    step = PythonFrame("run_step", "paceline/cluster/simulation/gang.py", 1)
    frames = (step,) if gang is not None and gang.running else (*waits, step)
    process = ProcessStack(rank.process.pid, "simulated rank", (ThreadStack(MAIN_THREAD, frames),))
    return StackSample(id=request, processes=(process,), cores=1.0)
