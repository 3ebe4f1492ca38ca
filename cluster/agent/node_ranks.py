"""The ranks of this node: they are launched, listened to, paused, ended, uploaded and forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Literal

import httpx
import msgspec

from paceline.cluster.agent.account import find_account
from paceline.cluster.agent.bundles import CodeRefusedError, JobCode
from paceline.cluster.agent.confinement import inherited_environment
from paceline.cluster.agent.containers.engines import ContainerEngine
from paceline.cluster.agent.containers.node_engines import NodeEngines
from paceline.cluster.agent.curves.readers import CurveReaders
from paceline.cluster.agent.environments import preparation
from paceline.cluster.agent.environments.preparation import JobEnvironments, PackagesRefusedError
from paceline.cluster.agent.errors import ProcessListNotAppliedError
from paceline.cluster.agent.exec_sessions import surroundings
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.housekeeping import SWEEP_SECONDS, Housekeeper, retire
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.job_secrets import JobSecretsKeeper, names_secrets
from paceline.cluster.agent.observer import RankObserver
from paceline.cluster.agent.offer import NodeOffer
from paceline.cluster.agent.rank_requests import RankRequests
from paceline.cluster.agent.ranks import launch
from paceline.cluster.agent.ranks.rank_link import RankLink, Said
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.cluster.agent.served_stores import ServedStores
from paceline.cluster.agent.settings import AgentSettings
from paceline.cluster.agent.spawner_fleet import SpawnerFleet
from paceline.cluster.agent.spawner_link import Move, ProcessList, Spawn, Terminate
from paceline.cluster.agent.supervisor import SpawnerOptions
from paceline.cluster.agent.upload.artifacts import ArtifactUploader
from paceline.cluster.agent.upload.delivery import UploadFailedError
from paceline.cluster.agent.upload.files import FileUploader
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.agent.upload.transfer import CoordinatorAwayError
from paceline.cluster.agent.upload.uploader import Uploader
from paceline.cluster.protocol import GenerationKey, Observed, RankKey
from paceline.monitoring.beats import until_beat
from paceline.training.link import FailureReport, RankHello, RankOrder
from paceline.training.rank_folder import RankFolder
from paceline.training.schema.script import grace_of

END_TIMEOUT_SECONDS = 10.0  # for the spawner to end, after the grace
LAST_UPLOAD_SECONDS = 3.0
STRANGER_GRACE_SECONDS = 3.0
WATCH_OUTPUT_SECONDS = 0.25  # a rank that prints 100 MB/s takes 25 MB more than its cap

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
        engines: tuple[ContainerEngine, ...] = (),
        spawner: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self._isolation, self._output_cap, self._spool_kept = isolation, settings.output_cap, settings.spool_kept
        self._on_change, self.cards = on_change, launch.SlotCards(offer.cards, offer.hides_cards, offer.gone)
        self._folder, self._http, run_as = folder, http, settings.confinement.run_as
        self.account = None if run_as is None else find_account(run_as)
        self._housekeeper = Housekeeper(folder.jobs, folder.trash)
        self._untidy = asyncio.Event()
        self._table = RankTable(folder, isolation)
        self._observer = RankObserver(self._table, settings.quiet_seconds, gpu_percent, on_change)
        self._uploader = Uploader(http, self._on_drained, isolation)
        self._secrets = JobSecretsKeeper(http, folder.jobs, folder.secret_jobs)
        self._code = JobCode(http, folder.bundles, self.account)
        self._artifacts = ArtifactUploader(http, JobFolders(folder.jobs, self._table.jobs), self._secrets.mask_of)
        self._files = FileUploader(http, JobFolders(folder.jobs, self._table.jobs), self._secrets.mask_of)
        self._spawners = SpawnerFleet(folder, SpawnerOptions.of(settings), offer.locks, self._on_process_list, isolation, spawner)
        self._inherited = inherited_environment(os.environ, settings.confinement.pass_environment)
        variables = preparation.variables_for_builds(self._inherited, os.environ, self.account)
        self._environments = JobEnvironments(folder.environments, self.account, variables, self._spawners, self._environments_in_use)
        self._engines = NodeEngines(engines, self.account, self._inherited)
        self._stores = ServedStores(self._spawners.send, settings.ports)
        self._link = RankLink(folder.agent_socket, self._on_message, self._table.knows)
        self.requests = RankRequests(self._table, self._link, self._observer, on_change)
        self._curves = CurveReaders(settings.confinement, self.account, isolation)
        self._spawner_is_warm = asyncio.Event()
        self._launches: dict[RankKey, asyncio.Task[None]] = {}
        self._unconfirmed: dict[RankKey, Spawn] = {}  # sent, and not yet in a process list

    @property
    def ranks(self) -> Mapping[RankKey, RankRecord]:
        return self._table.ranks

    def secrets_of(self, job_id: str) -> Mapping[str, str]:
        """The secrets of a job, for a command beside one of its ranks."""
        return self._secrets.values_of(job_id)

    def masked(self, observed: Observed) -> Observed:
        """A report without the secrets of the jobs that it is about."""
        return msgspec.structs.replace(observed, assignments=tuple(map(self._secrets.masked, observed.assignments)))

    def any_alive(self) -> bool:
        return any(rank.phase in (RankPhase.PREPARING, RankPhase.ALIVE) for rank in self.ranks.values())

    def retry_uploads(self) -> None:
        self._uploader.retry()

    def backlog(self) -> int:
        return self._uploader.backlog()

    async def open(self) -> None:
        """Take over the ranks of a previous agent, and listen to them. A rank whose files cannot be read is watched all the same."""
        self._table.load()
        await asyncio.to_thread(self._code.clear)
        self._secrets.adopt()
        for rank in self.ranks.values():
            with self._isolation.of(f"the files of rank {rank.key}"):
                self._follow(rank.order)
        self._spawners.adopt({name for rank in self.ranks.values() if (name := rank.order.interpreter.spawner)})
        self._observer.recall(time.time())
        self._untidy.set()
        await self._link.start()
        if self.account is not None:
            self.account.own(self._folder.agent_socket)

    def works(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The tasks to keep running as long as the agent lives, by name."""
        return {
            "spawner": self._spawners.run,
            "spawners of environments": self._spawners.end_idle,
            "secrets of jobs": self._secrets.run,
            "uploads": self._uploader.run,
            "traces of ranks": self._artifacts.run,
            "files of ranks": self._files.run,
            "housekeeping": self._remove_old_folders,
            "output of ranks": self._watch_output,
            "looks at ranks": self._observer.watch,
        }

    async def _watch_output(self) -> None:
        """Note when each rank has printed how much, whether or not anything can be sent now, and keep its output below its cap."""
        while True:
            await self._uploader.any_spool()
            await asyncio.sleep(until_beat(WATCH_OUTPUT_SECONDS, time.monotonic()))
            for key, spool in self._uploader.spools():
                with self._isolation.of(f"the output of rank {key}"):
                    spool.look(time.time())
                    spool.trim()

    async def _remove_old_folders(self) -> None:
        """Remove old folders of ranks now and then."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._untidy.wait()
            self._untidy.clear()
            await self._housekeeper.tidy(self._http, time.time())
            self._secrets.forget_removed()

    async def until_warm(self, timeout_seconds: float) -> None:
        """Wait until the spawner can fork ranks at once, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._spawner_is_warm.wait()

    async def close(self) -> None:
        await self._cancel_launches()
        await self._spawners.close()
        await self._engines.close()
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
                await self._spawners.shut_down(grace)
        except TimeoutError:
            log.error("the spawner does not end; killing it, and with it its ranks")
            self._spawners.kill()
        await self._curves.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_UPLOAD_SECONDS):
                for finish in (self._uploader.finish, self._files.finish):
                    with contextlib.suppress(UploadFailedError, CoordinatorAwayError, OSError):
                        await finish()

    async def _cancel_launches(self) -> None:
        launches = list(self._launches.values())
        for task in launches:
            task.cancel()
        await asyncio.gather(*launches, return_exceptions=True)

    # -- what `reconcile` decided

    def start(self, order: RankOrder, local_slots: tuple[int, ...]) -> None:
        key = RankKey.of(order.world)
        self._table.add(order)
        task = asyncio.create_task(self._launch(order, local_slots))
        self._launches[key] = task
        task.add_done_callback(lambda _: self._launches.pop(key, None))

    async def _launch(self, order: RankOrder, local_slots: tuple[int, ...]) -> None:
        key = RankKey.of(order.world)
        try:
            launch.keep(order, self.account)
            preparation.begin(order)
            launch.make_artifacts_folder(order, self.account)
            self._untidy.set()  # the generation before this one is no longer the last
            await self._code.place(order)
            order = await self._with_packages(order)
            secrets = await self._secrets.fetch(order)
            spawn = await launch.prepare(order, self.cards, local_slots, self._stores.choose, secrets, self._inherited)
            spawn = self._engines.contained(spawn)
            surroundings.remember(spawn)
        except (PackagesRefusedError, CodeRefusedError) as error:
            return self._refuse(key, str(error), "invalid_input")
        except Exception as error:  # noqa: BLE001 - whatever keeps this rank from starting is told as its end
            return self._refuse(key, f"cannot start: {str(error) or type(error).__name__}")
        self._follow(order)
        self._table.change(key, phase=RankPhase.ALIVE)
        self._send_order(key, spawn)
        return None

    def _send_order(self, key: RankKey, spawn: Spawn) -> None:
        """Send an order to its spawner. One that is away for a moment gets it with its first process list; that of an environment may have ended."""
        self._unconfirmed[key] = spawn
        spawner = spawn.order.interpreter.spawner
        if not self._spawners.send(spawn, spawner) and self._spawners.has_ended(spawner):
            del self._unconfirmed[key]
            self._refuse(key, "cannot start: the process that has its packages ended")

    async def _with_packages(self, order: RankOrder) -> RankOrder:
        """Prepare the packages of a rank, with the lines of the build in its log. Returns its order with the interpreter, which is on disk."""
        if not order.spec.installs_packages:
            return order
        self._follow(order)
        order = await self._environments.prepare(order)
        launch.keep(order, self.account)
        self._table.change(RankKey.of(order.world), order=order)
        return order

    def _refuse(self, key: RankKey, message: str, kind: Literal["exit", "invalid_input"] = "exit", *, ordered: bool = False) -> None:
        """Record a rank that never started; `ordered`: it was told to end before. The lines of a build that are in its log are sent first."""
        followed = self.ranks[key].order.spec.installs_packages
        failure = FailureReport(kind=kind, rank=key.rank, message=message, time=time.time(), ordered=ordered)
        self._table.refuse(key, failure, drained=not followed)
        if followed:
            self._follow(self.ranks[key].order)
            self._uploader.exited(key)
        self._on_change()

    def _environments_in_use(self) -> set[str]:
        """The keys of the environments of living ranks. May be called in a thread, while ranks come and go."""
        return {rank.order.interpreter.environment for rank in list(self.ranks.values()) if rank.phase is not RankPhase.EXITED} - {""}

    def move(self, key: RankKey, order: RankOrder) -> None:
        """Give a living process a place in a newer generation. The spawner is told first: should this agent die in between, its
        successor finds the process under the new key and calls it."""
        order = msgspec.structs.replace(order, interpreter=self.ranks[key].order.interpreter)
        try:
            launch.keep(order, self.account)
        except OSError as error:
            log.error("%s cannot take its place in generation %d: %s; trying again", key, order.world.generation, error)
            return
        folder = self.ranks[key].order.folder
        new = self._table.move(key, order)
        self._follow(order)
        self._spawners.send(Move(key=key, folder=folder, order=order), order.interpreter.spawner)
        self.requests.take_place(new.key)

    def mark_exited(self, key: RankKey | None, order: RankOrder) -> None:
        self._table.mark_exited(key, order)
        self._on_change()

    def serve_stores_of(self, generations: Collection[GenerationKey]) -> None:
        """Serve the stores of these generations, and end all other stores."""
        self._stores.keep(generations)

    def terminate(self, key: RankKey, grace_seconds: float) -> None:
        task = self._launches.pop(key, None)
        if task is not None and not task.done():  # done: the spawner has its order, though the next turn of the event loop is yet to tell
            task.cancel()
            self._refuse(key, "stopped before it was started", ordered=True)
        elif self._spawners.send(Terminate(key=key, grace_seconds=grace_seconds), self.ranks[key].order.interpreter.spawner):
            self._table.change(key, stopping=True)

    def forget(self, key: RankKey) -> None:
        order = self.ranks[key].order
        folder = RankFolder.at(Path(order.folder))
        self._uploader.forget(key)
        self._table.forget(key)
        if not any(each.job_id == key.job_id for each in self.ranks):
            self._secrets.forget(key.job_id)
        self._curves.update(self.ranks)
        with self._isolation.of(f"{folder.path}, which is no longer needed"):
            retire(folder, had_secrets=names_secrets(order))
        self._untidy.set()
        self._on_change()

    # -- news

    def _follow(self, order: RankOrder) -> None:
        key = RankKey.of(order.world)
        mask = functools.partial(self._secrets.mask_of, key.job_id, key.generation)
        folder, ranks = RankFolder.at(Path(order.folder)), order.world.world_size
        self._uploader.follow(key, RankSpool(folder, key, self._output_cap, mask, self._spool_kept, ranks))

    def _on_process_list(self, spawner: str, process_list: ProcessList, first: bool) -> None:
        if not spawner:
            self._spawner_is_warm.set()
            self._stores.apply(process_list, first=first)
        exited = self._table.apply(process_list, first=first, spawner=spawner)
        with self._isolation.of("curves of scripts"):
            self._curves.update(self.ranks, exited)
        for key in exited:
            self._engines.end(self.ranks[key].order)
            written = functools.partial(self._written, key)
            self._curves.when_read(key, functools.partial(self._files.look_through, self.ranks[key].process, written))
        for key, rank in self._table.pending_moves(process_list):
            self._spawners.send(Move(key=key, folder=self.ranks[key].order.folder, order=rank.order), spawner)
        for key in self._table.unknown_ranks(process_list):
            self._spawners.send(Terminate(key=key, grace_seconds=STRANGER_GRACE_SECONDS), spawner)
        self._confirm(spawner, first=first)
        self._on_change()
        if first and self._table.not_applied:  # only the first process list of a connection tells which ranks are gone
            raise ProcessListNotAppliedError(f"{self._table.not_applied} ranks' ends cannot be read; asking the spawner again")

    def _written(self, key: RankKey) -> None:
        """Note that this rank's process, and the reader of its files, write nothing more."""
        for life in (key, *self._table.earlier(key)) if key in self.ranks else ():
            self._uploader.exited(life)

    def _confirm(self, spawner: str, *, first: bool) -> None:
        """Send an order that went to an ended spawner to the next one."""
        for key, spawn in list(self._unconfirmed.items()):
            rank = self.ranks.get(key)
            if spawn.order.interpreter.spawner != spawner:
                continue
            if rank is None or rank.pid is not None or rank.phase is RankPhase.EXITED:
                del self._unconfirmed[key]
            elif first:
                self._send_order(key, spawn)

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
