"""Watches ranks from outside: which script has fallen quiet, how much CPU time it takes, and, when asked, its Python stacks."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.cluster.agent.processes import cpu_seconds_of
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.cluster.agent.stacks import StackReader
from paceline.cluster.policy.quiet import patience_of
from paceline.cluster.protocol import RankKey
from paceline.cluster.stacks import StackSample
from paceline.monitoring.beats import until_beat
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec

LOOK_SECONDS = 1.0
#: Where the wall clock goes ahead of the monotonic one by more between two looks, this machine slept, or its clock was set.
SLEPT_SECONDS = 5.0
#: CPU time is measured over so long, and read so often: for it all of /proc is gone through.
CPU_WINDOW_SECONDS, CPU_SECONDS = 10.0, 5.0


@dataclass
class CpuMeter:
    """CPU time of ranks over the last CPU_WINDOW_SECONDS, by pid."""

    _readings: dict[int, deque[tuple[float, float]]] = field(default_factory=dict)

    def is_due(self, pids: Iterable[int], now: float) -> bool:
        """Whether the CPU time of these ranks is to be read: every CPU_SECONDS, and until there are two readings of each."""
        known: list[Sequence[tuple[float, float]]] = [self._readings.get(pid, ()) for pid in pids]
        return any(len(readings) < 2 or now - readings[-1][0] >= CPU_SECONDS for readings in known)

    def note(self, seconds: Mapping[int, float], now: float) -> None:
        """Note the CPU time of every living rank."""
        for pid in self._readings.keys() - seconds.keys():
            del self._readings[pid]
        for pid, total in seconds.items():
            readings = self._readings.setdefault(pid, deque())
            readings.append((now, total))
            while readings[-1][0] - readings[1 if len(readings) > 1 else 0][0] >= CPU_WINDOW_SECONDS:
                readings.popleft()

    def cores(self, pid: int) -> float | None:
        """The CPU cores that a rank used on average; None until there are two readings."""
        readings = self._readings.get(pid)
        if readings is None or len(readings) < 2:
            return None
        (began, before), (ended, after) = readings[0], readings[-1]
        return round(max(0.0, after - before) / (ended - began), 2) if ended > began else None


def last_sign(rank: RankRecord) -> float | None:
    """When this rank last had output or a step, by the wall clock. Read from its files, so that an agent that was not running then knows
    it too. The rank may have set their times to any: one before 1970 is none that can be reported."""
    folder = RankFolder.at(Path(rank.order.folder))
    times = [_changed(path) for path in (folder.order, folder.output, folder.metrics, folder.events)]
    return max((max(changed, 0.0) for changed in times if changed is not None), default=None)


def _changed(path: Path) -> float | None:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime
    except OSError:  # not written yet, or the rank has removed it
        return None


def quiet_since(rank: RankRecord, usual_patience: float, now: float, awake_since: float = 0.0) -> float | None:
    """Since when a script's rank has had no output and no step; None while that is shorter than its patience. Both times are of the wall
    clock; before `awake_since` this machine slept, and the rank could do nothing."""
    if not rank.is_script or rank.stopping or (last := last_sign(rank)) is None:
        return None
    return last if now - max(last, awake_since) >= patience_of(rank.order.spec.document, usual_patience) else None


def program_of(spec: StoredSpec) -> str:
    """The program of a script's ranks, in one line; empty for a job of our own trainer."""
    command, path, module, args = (spec.part("script", name) for name in ("command", "path", "module", "args"))
    words = command or [path or module or "", *(args or ())]
    return " ".join(map(str, words))


class RankObserver:
    """Writes its observations of ranks into `table`; `on_change` is called when they are to be reported. `gpu_percent` gives a card's
    utilization by slot."""

    def __init__(
        self, table: RankTable, usual_patience: float, gpu_percent: Callable[[int], float | None], on_change: Callable[[], None]
    ) -> None:
        self._table, self._usual_patience, self._gpu_percent, self._on_change = table, usual_patience, gpu_percent, on_change
        self._cpu = CpuMeter()
        self._reader = StackReader()
        self._reading: dict[tuple[RankKey, str], asyncio.Task[None]] = {}
        self._last_look: tuple[float, float] | None = None  # wall clock, monotonic
        self._awake_since = 0.0

    def recall(self, now: float) -> None:
        """Restore the observations of a previous agent: quiet ranks are reported as quiet from the first report on."""
        for key, rank in list(self._table.ranks.items()):
            if rank.phase is RankPhase.ALIVE:
                self._table.change(key, quiet_since=quiet_since(rank, self._usual_patience, now))

    async def watch(self) -> None:
        """Look at the ranks again and again."""
        while True:
            await asyncio.sleep(until_beat(LOOK_SECONDS, time.monotonic()))
            await self.look_once(time.time(), time.monotonic())

    async def look_once(self, now: float, monotonic: float) -> None:
        """Look at all ranks once, in a thread: /proc of a large machine takes a while. `now` is the wall clock; `monotonic` stands still
        while this machine sleeps."""
        self._note_sleep(now, monotonic)
        alive = [rank for rank in self._table.ranks.values() if rank.phase is RankPhase.ALIVE and rank.pid is not None]
        if not alive:
            return
        reads_cpu = self._cpu.is_due([rank.pid for rank in alive if rank.pid is not None], monotonic)
        if not reads_cpu and not any(rank.is_script for rank in alive):
            return
        seen, seconds = await asyncio.to_thread(self._look, alive, now, reads_cpu)
        if seconds is not None:
            self._cpu.note(seconds, monotonic)
        for rank in alive:
            known = self._table.ranks.get(rank.key)
            if known is not None and known.ending is None and known.quiet_since != seen[rank.key]:
                self._table.change(rank.key, quiet_since=seen[rank.key])
                self._on_change()

    def _note_sleep(self, now: float, monotonic: float) -> None:
        if self._last_look is not None:
            last_now, last_monotonic = self._last_look
            if now - last_now > monotonic - last_monotonic + SLEPT_SECONDS:
                self._awake_since = now
        self._awake_since = min(self._awake_since, now)  # a clock that was ahead, and has been set back
        self._last_look = now, monotonic

    def _look(
        self, alive: Iterable[RankRecord], now: float, reads_cpu: bool
    ) -> tuple[dict[RankKey, float | None], dict[int, float] | None]:
        seen = {rank.key: quiet_since(rank, self._usual_patience, now, self._awake_since) for rank in alive}
        return seen, cpu_seconds_of([rank.pid for rank in alive if rank.pid is not None]) if reads_cpu else None

    def read_stacks(self, key: RankKey, request: str) -> None:
        """Begin to read the stacks of a rank, unless that is under way."""
        if (key, request) not in self._reading:
            task = asyncio.create_task(self._read_stacks(key, request))
            self._reading[key, request] = task
            task.add_done_callback(lambda _: self._reading.pop((key, request), None))

    async def _read_stacks(self, key: RankKey, request: str) -> None:
        rank = self._table.ranks[key]
        if rank.pid is None:
            return
        pid, world = rank.pid, rank.order.world
        gpu_percent = self._gpu_percent(world.slot) if world.device == "cuda" else None
        empty = StackSample(id=request, cores=self._cpu.cores(pid), gpu_percent=gpu_percent)
        stacks = await self._reader.read(empty, pid, program_of(rank.order.spec))
        if key in self._table.ranks:
            self._table.change(key, stacks=stacks)
            self._on_change()

    async def close(self) -> None:
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
