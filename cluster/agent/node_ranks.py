"""The ranks of this node: they are launched, listened to, paused, ended, uploaded and forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

import httpx

from paceline.cluster.agent.account import find_account
from paceline.cluster.agent.curves.readers import CurveReaders
from paceline.cluster.agent.errors import ProcessListNotAppliedError
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.housekeeping import SWEEP_SECONDS, Housekeeper, retire
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.observer import RankObserver
from paceline.cluster.agent.offer import NodeOffer
from paceline.cluster.agent.ranks import launch
from paceline.cluster.agent.ranks.rank_link import RankLink, Said
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.cluster.agent.served_stores import ServedStores
from paceline.cluster.agent.settings import AgentSettings
from paceline.cluster.agent.spawner_link import Move, ProcessList, Spawn, Terminate, key_of
from paceline.cluster.agent.supervisor import SpawnerOptions, Supervisor
from paceline.cluster.agent.upload.artifacts import ArtifactUploader
from paceline.cluster.agent.upload.delivery import UploadFailedError
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.agent.upload.uploader import Uploader
from paceline.cluster.protocol import GenerationKey, RankKey
from paceline.training.link import PauseRequest, RankHello, RankOrder, Reform, Release, TraceRequest
from paceline.training.rank_folder import RankFolder
from paceline.training.schema.script import grace_of

END_TIMEOUT_SECONDS = 10.0  # for the spawner to end, after the grace
LAST_UPLOAD_SECONDS = 3.0
STRANGER_GRACE_SECONDS = 3.0
CAP_OUTPUT_SECONDS = 0.25  # a rank that prints 100 MB/s takes 25 MB more than its cap

log = logging.getLogger(__name__)


class NodeRanks:
    """The ranks of this node. `on_change` is called when there is something new to report or to decide."""

    def __init__(
        self,
        settings: AgentSettings,
        folder: AgentFolder,
        offer: NodeOffer,
        http: httpx.AsyncClient,
        isolation: Isolation,
        gpu_percent: Callable[[int], float | None],
        on_change: Callable[[], None],
    ) -> None:
        self._isolation, self._output_cap = isolation, settings.output_cap
        self._on_change, self._cards = on_change, launch.SlotCards(offer.cards, hides_cards=offer.hides_cards)
        self._folder, run_as = folder, settings.confinement.run_as
        self._account = None if run_as is None else find_account(run_as)
        self._housekeeper = Housekeeper(folder.jobs, folder.trash)
        self._untidy = asyncio.Event()
        self._table = RankTable(folder, isolation)
        self._observer = RankObserver(self._table, settings.quiet_seconds, gpu_percent, on_change)
        self._uploader = Uploader(http, self._on_drained, isolation)
        self._artifacts = ArtifactUploader(http, folder.jobs)
        options = SpawnerOptions(settings.name, settings.trainer, settings.orphan_seconds, settings.confinement)
        self._supervisor = Supervisor(folder, options, offer.locks, self._on_process_list)
        self._stores = ServedStores(self._supervisor.send, settings.ports)
        self._link = RankLink(folder.agent_socket, self._on_message)
        self._curves = CurveReaders(settings.confinement, self._account, isolation)
        self._spawner_is_warm = asyncio.Event()
        self._launches: dict[RankKey, asyncio.Task[None]] = {}
        self._unconfirmed: dict[RankKey, Spawn] = {}  # sent, and not yet in a process list

    @property
    def ranks(self) -> Mapping[RankKey, RankRecord]:
        return self._table.ranks

    def any_alive(self) -> bool:
        return any(rank.phase in (RankPhase.PREPARING, RankPhase.ALIVE) for rank in self.ranks.values())

    def retry_uploads(self) -> None:
        self._uploader.retry()

    def backlog(self) -> int:
        return self._uploader.backlog()

    async def open(self) -> None:
        """Take over the ranks of a previous agent, and listen to them. A rank whose files cannot be read is watched all the same."""
        self._table.load()
        for rank in self.ranks.values():
            with self._isolation.of(f"the files of rank {rank.key}"):
                self._follow(rank.order)
        self._observer.recall(time.time())
        self._untidy.set()
        await self._link.start()
        if self._account is not None:
            self._account.own(self._folder.agent_socket)

    def works(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The tasks to keep running as long as the agent lives, by name."""
        return {
            "spawner": self._supervisor.run,
            "uploads": self._uploader.run,
            "files of ranks": self._artifacts.run,
            "housekeeping": self._remove_old_folders,
            "caps of output": self._cap_output,
            "looks at ranks": self._observer.watch,
        }

    async def _cap_output(self) -> None:
        while True:
            await asyncio.sleep(CAP_OUTPUT_SECONDS)
            for key, spool in self._uploader.spools():
                with self._isolation.of(f"the output of rank {key}"):
                    spool.trim()

    async def _remove_old_folders(self) -> None:
        """Remove old folders of ranks now and then, in a thread: that may take long."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._untidy.wait()
            self._untidy.clear()
            await asyncio.to_thread(self._housekeeper.sweep, time.time())

    async def until_warm(self, timeout_seconds: float) -> None:
        """Wait until the spawner can fork ranks at once, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._spawner_is_warm.wait()

    async def close(self) -> None:
        await self._cancel_launches()
        await self._curves.close()
        await self._observer.close()
        self._uploader.save()
        await self._link.close()

    def longest_grace(self) -> float:
        """The seconds that the living ranks may take to end."""
        return max((grace_of(rank.order.spec.document) for rank in self.ranks.values() if rank.phase is RankPhase.ALIVE), default=0.0)

    async def end_all(self, most_seconds: float) -> None:
        """End every rank within its grace, of at most so many seconds, then the spawner. Data that the coordinator does not take now
        stays on disk."""
        await self._cancel_launches()
        grace = min(self.longest_grace(), most_seconds)
        try:
            async with asyncio.timeout(grace + END_TIMEOUT_SECONDS):
                await self._supervisor.shut_down(grace)
        except TimeoutError:
            log.error("the spawner does not end; killing it, and with it its ranks")
            self._supervisor.kill()
        await self._curves.finish()
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
            launch.keep(order, self._account)
            self._untidy.set()  # the generation before this one is no longer the last
            spawn = await launch.prepare(order, self._cards, local_slots, self._stores.choose)
        except Exception as error:  # noqa: BLE001 - whatever keeps this rank from starting is told as its end
            self._table.refuse(key, f"cannot start: {str(error) or type(error).__name__}")
            return self._on_change()
        self._follow(order)
        self._table.change(key, phase=RankPhase.ALIVE)
        self._unconfirmed[key] = spawn
        self._supervisor.send(spawn)
        return None

    def move(self, key: RankKey, order: RankOrder) -> None:
        """Give a living process a place in a newer generation. The spawner is told first: should this agent die in between, its
        successor finds the process under the new key and calls it."""
        try:
            launch.keep(order, self._account)
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

    def mark_exited(self, key: RankKey | None, order: RankOrder) -> None:
        self._table.mark_exited(key, order)
        self._on_change()

    def serve_stores_of(self, generations: Collection[GenerationKey]) -> None:
        """Serve the stores of these generations, and end all other stores."""
        self._stores.keep(generations)

    def pause(self, key: RankKey) -> None:
        self._link.ask(self.ranks[key].birth, PauseRequest())

    def profile(self, key: RankKey, request: TraceRequest) -> None:
        self._link.ask(self.ranks[key].birth, request)

    def read_stacks(self, key: RankKey, request: str) -> None:
        self._observer.read_stacks(key, request)

    def drop_stacks(self, key: RankKey) -> None:
        self._table.change(key, stacks=None)
        self._on_change()

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
        self._curves.update(self.ranks)
        with self._isolation.of(f"{folder.path}, which is no longer needed"):
            retire(folder)
        self._untidy.set()
        self._on_change()

    # -- news

    def _follow(self, order: RankOrder) -> None:
        key = key_of(order.world)
        self._uploader.follow(key, RankSpool(RankFolder.at(Path(order.folder)), key, self._output_cap))

    def _on_process_list(self, process_list: ProcessList, first: bool) -> None:
        self._spawner_is_warm.set()
        self._stores.apply(process_list, first=first)
        exited = self._table.apply(process_list, first=first)
        with self._isolation.of("curves of scripts"):
            self._curves.update(self.ranks, exited)
        for key in exited:
            self._curves.when_read(key, functools.partial(self._written, key))
        for key, rank in self._table.pending_moves(process_list):
            self._supervisor.send(Move(key=key, folder=self.ranks[key].order.folder, order=rank.order))
        for key in self._table.unknown_ranks(process_list):
            self._supervisor.send(Terminate(key=key, grace_seconds=STRANGER_GRACE_SECONDS))
        self._confirm(first=first)
        self._on_change()
        if first and self._table.not_applied:  # only the first process list of a connection tells which ranks are gone
            raise ProcessListNotAppliedError(f"{self._table.not_applied} ranks' ends cannot be read; asking the spawner again")

    def _written(self, key: RankKey) -> None:
        """Note that this rank's process, and the reader of its files, write nothing more."""
        for life in (key, *self._table.earlier(key)):
            self._uploader.exited(life)

    def _confirm(self, *, first: bool) -> None:
        """Send an order that went to an ended spawner to the next one."""
        for key, spawn in list(self._unconfirmed.items()):
            rank = self.ranks.get(key)
            if rank is None or rank.pid is not None or rank.phase is RankPhase.EXITED:
                del self._unconfirmed[key]
            elif first:
                self._supervisor.send(spawn)

    def _on_message(self, key: RankKey, message: Said) -> None:
        if self._table.on_message(key, message, time.monotonic()):
            self._on_change()
        if isinstance(message, RankHello):
            for life in self._table.earlier(key):
                self._uploader.exited(life)
        self._uploader.nudge()

    def _on_drained(self, key: RankKey) -> None:
        self._table.change(key, drained=True)
        self._curves.update(self.ranks)
        self._on_change()
