"""Everything that happens to the ranks of this node: launched, heard, paused, ended, uploaded, forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

import httpx

from cluster.agent import housekeeping, launch
from cluster.agent.artifacts import ArtifactUploader
from cluster.agent.folders import AgentFolder
from cluster.agent.rank_link import RankLink, Said
from cluster.agent.rank_table import RankTable
from cluster.agent.ranks import Phase, Rank
from cluster.agent.settings import AgentSettings
from cluster.agent.spawner_link import Move, RankKey, Roster, Spawn, Terminate, key_of
from cluster.agent.spool import RankSpool
from cluster.agent.supervisor import Supervisor
from cluster.agent.uploader import Uploader, UploadFailedError
from distributed.errors import DistributedError
from training.link import PauseRequest, ProfileRequest, RankFolder, RankHello, RankOrder, Reform, Release

END_TIMEOUT_SECONDS = 10.0  # for the spawner to end, after the grace
LAST_UPLOAD_SECONDS = 3.0
STRANGER_GRACE_SECONDS = 3.0

log = logging.getLogger(__name__)


class NodeRanks:
    """`on_change` is called when there is something new to report or to decide."""

    def __init__(self, settings: AgentSettings, folder: AgentFolder, http: httpx.AsyncClient, on_change: Callable[[], None]) -> None:
        self._folder = folder
        self._on_change = on_change
        self._table = RankTable(folder)
        self._uploader = Uploader(http, self._on_drained)
        self._artifacts = ArtifactUploader(http, folder.jobs)
        self._supervisor = Supervisor(folder, settings.trainer, settings.orphan_seconds, self._on_roster)
        self._link = RankLink(folder.agent_socket, self._on_message)
        self._spawner_is_warm = asyncio.Event()
        self._launches: dict[RankKey, asyncio.Task[None]] = {}
        self._unconfirmed: dict[RankKey, Spawn] = {}  # sent, and not yet in a roster

    @property
    def ranks(self) -> Mapping[RankKey, Rank]:
        return self._table.ranks

    def any_alive(self) -> bool:
        return any(rank.phase in (Phase.PREPARING, Phase.ALIVE) for rank in self.ranks.values())

    def retry_uploads(self) -> None:
        self._uploader.retry()

    def backlog(self) -> int:
        return self._uploader.backlog()

    async def open(self) -> None:
        """Take over what a predecessor left, and listen to ranks."""
        self._table.load()
        for rank in self.ranks.values():
            self._follow(rank.order)
        housekeeping.sweep(self._folder.jobs, time.time())
        await self._link.start()

    def works(self) -> list[Coroutine[None, None, None]]:
        """To be run as long as the agent lives."""
        return [self._supervisor.run(), self._uploader.run(), self._artifacts.run()]

    async def until_warm(self, timeout_seconds: float) -> None:
        """Until the spawner can fork ranks at once, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._spawner_is_warm.wait()

    async def close(self) -> None:
        await self._cancel_launches()
        self._uploader.save()
        await self._link.close()

    async def end_all(self, grace_seconds: float) -> None:
        """Every rank, then the spawner; what they left is uploaded if the coordinator takes it, else stays on disk."""
        await self._cancel_launches()
        try:
            async with asyncio.timeout(grace_seconds + END_TIMEOUT_SECONDS):
                await self._supervisor.shut_down(grace_seconds)
        except TimeoutError:
            log.error("the spawner does not end; killing it, and with it its ranks")
            self._supervisor.kill()
        with contextlib.suppress(TimeoutError, UploadFailedError):
            async with asyncio.timeout(LAST_UPLOAD_SECONDS):
                await self._uploader.finish()

    async def _cancel_launches(self) -> None:
        launches = list(self._launches.values())
        for task in launches:
            task.cancel()
        await asyncio.gather(*launches, return_exceptions=True)

    # -- what `reconcile` decided

    def start(self, order: RankOrder, local_slots: tuple[int, ...]) -> None:
        key = key_of(order.world)
        self._table.add(order)
        task = asyncio.create_task(self._launch(order, local_slots))
        self._launches[key] = task
        task.add_done_callback(lambda _: self._launches.pop(key, None))

    async def _launch(self, order: RankOrder, local_slots: tuple[int, ...]) -> None:
        key = key_of(order.world)
        try:
            launch.keep(order)
            housekeeping.sweep(self._folder.jobs, time.time())  # the generation before this one is no longer the last
            spawn = await launch.prepare(order, local_slots)
        except (OSError, ValueError, DistributedError) as error:
            self._table.refuse(key, f"cannot start: {error}")
            return self._on_change()
        self._follow(order)
        self._table.change(key, phase=Phase.ALIVE)
        self._unconfirmed[key] = spawn
        self._supervisor.send(spawn)
        return None

    def move(self, key: RankKey, order: RankOrder) -> None:
        """The spawner first: should this agent die in between, its successor finds the process under the new key and calls it."""
        try:
            launch.keep(order)
        except OSError as error:
            log.error("%s cannot take its place in generation %d: %s; trying again", key, order.world.generation, error)
            return
        folder = self.ranks[key].order.folder
        new = self._table.move(key, order)
        self._follow(order)
        self._supervisor.send(Move(key=key, folder=folder, order=order))
        self.call(new.key)

    def call(self, key: RankKey) -> None:
        rank = self.ranks[key]
        self._link.ask(rank.birth, Reform(order=rank.order))

    def bury(self, key: RankKey | None, order: RankOrder) -> None:
        self._table.bury(key, order)
        self._on_change()

    def pause(self, key: RankKey) -> None:
        self._link.ask(self.ranks[key].birth, PauseRequest())

    def profile(self, key: RankKey, request: ProfileRequest) -> None:
        self._link.ask(self.ranks[key].birth, request)

    def release(self, key: RankKey) -> None:
        self._link.ask(self.ranks[key].birth, Release())

    def terminate(self, key: RankKey, grace_seconds: float) -> None:
        task = self._launches.pop(key, None)
        if task is not None:
            task.cancel()
            self._table.refuse(key, "stopped before it was started")
            self._on_change()
        elif self._supervisor.send(Terminate(key=key, grace_seconds=grace_seconds)):
            self._table.change(key, stopping=True)

    def forget(self, key: RankKey) -> None:
        folder = RankFolder.at(Path(self.ranks[key].order.folder))
        self._uploader.forget(key)
        self._table.forget(key)
        housekeeping.retire(folder)
        housekeeping.sweep(self._folder.jobs, time.time())
        self._on_change()

    # -- news

    def _follow(self, order: RankOrder) -> None:
        key = key_of(order.world)
        self._uploader.follow(key, RankSpool(RankFolder.at(Path(order.folder)), key))

    def _on_roster(self, roster: Roster, first: bool) -> None:
        self._spawner_is_warm.set()
        for key in self._table.apply(roster, first=first):
            for life in (key, *self._table.earlier(key)):
                self._uploader.exited(life)
        for key, rank in self._table.unmoved(roster):
            self._supervisor.send(Move(key=key, folder=self.ranks[key].order.folder, order=rank.order))
        for key in self._table.strangers(roster):
            self._supervisor.send(Terminate(key=key, grace_seconds=STRANGER_GRACE_SECONDS))
        self._confirm(first=first)
        self._on_change()

    def _confirm(self, *, first: bool) -> None:
        """An order that went to a spawner which is gone is sent to its successor."""
        for key, spawn in list(self._unconfirmed.items()):
            rank = self.ranks.get(key)
            if rank is None or rank.pid is not None or rank.phase is Phase.EXITED:
                del self._unconfirmed[key]
            elif first:
                self._supervisor.send(spawn)

    def _on_message(self, key: RankKey, message: Said) -> None:
        if self._table.hear(key, message, time.monotonic()):
            self._on_change()
        if isinstance(message, RankHello):
            for life in self._table.earlier(key):
                self._uploader.exited(life)
        self._uploader.nudge()

    def _on_drained(self, key: RankKey) -> None:
        self._table.change(key, drained=True)
        self._on_change()
