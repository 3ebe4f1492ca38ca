"""The agent: brings what runs here closer to what the coordinator desires, and reports what runs. `reconcile` decides."""

from __future__ import annotations

import asyncio
import logging
import math
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from paceline.cluster.agent.actions import ActionRunner, described
from paceline.cluster.agent.checkpoints import CheckpointDeletions
from paceline.cluster.agent.client import CoordinatorChannel
from paceline.cluster.agent.containers.engines import ContainerEngine
from paceline.cluster.agent.errors import ChannelRefusedError
from paceline.cluster.agent.exec_sessions.sessions import ExecSessions
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.inventory import agent_version
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.join import Credential
from paceline.cluster.agent.node_ranks import NodeRanks
from paceline.cluster.agent.notices import NoticeWatch
from paceline.cluster.agent.offer import NodeOffer
from paceline.cluster.agent.ranks.rank_claims import bounded_report
from paceline.cluster.agent.ranks.reconcile import StoreNamespace, observe, reconcile, store_namespaces
from paceline.cluster.agent.reading_recorder import ReadingRecorder
from paceline.cluster.agent.settings import AgentSettings
from paceline.cluster.agent.upload.delivery import KEPT_CONNECTIONS
from paceline.cluster.agent.upload.readings_spool import ReadingsSpool
from paceline.cluster.agent.upload.readings_uploader import ReadingsUploader
from paceline.cluster.agent.vitals import RankHeartbeats
from paceline.cluster.protocol import (
    PROTOCOL_VERSION,
    AgentHello,
    Desired,
    GenerationKey,
    Heartbeat,
    Inventory,
    Leaving,
    Notice,
    Observed,
    OpenExec,
    Welcome,
)
from paceline.distributed.store_server import StoreServer
from paceline.monitoring.beats import until_beat
from paceline.training.spec.stored import schema

TICK_SECONDS = 0.5
#: Two reports are so far apart, unless the state of a rank has changed.
SHORTEST_REPORT_SECONDS = 0.2
#: The grace of ranks on a node that was removed by force: their jobs are started elsewhere already.
REMOVED_GRACE_SECONDS = 3.0
WARM_UP_SECONDS = 30.0
REMOVED = "the coordinator removed this node: to come back, join anew with a new token"
LEFT_UPON_NOTICE = "the node is drained: leaving before its machine is taken away"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentContext:
    """Facts about this agent that are found out once, before it starts."""

    offer: NodeOffer
    inventory: Inventory
    address: str
    interface: str | None
    store_port: int
    engines: tuple[ContainerEngine, ...] = ()  # that can run containers here, the preferred one first
    spawner: subprocess.Popen[bytes] | None = None  # that was started while the agent joined


@dataclass
class ConnectionRecord:
    """The messages that have come and gone over the present connection to a coordinator."""

    takes_notices: bool = False
    notice: Notice | None = None  # the one that was sent
    observed: Observed | None = None  # the newest that was sent
    observed_at: float = 0.0  # monotonic
    has_spoken: bool = False  # its first desired state counts, whatever its revision


class Agent:
    def __init__(
        self,
        settings: AgentSettings,
        folder: AgentFolder,
        credential: Credential,
        context: AgentContext,
        store: StoreServer,
        vitals: RankHeartbeats,
        notices: NoticeWatch | None = None,
    ) -> None:
        self._folder, self._context, self._store, self._vitals = folder, context, store, vitals
        tls, headers = credential.tls, {"Authorization": f"Bearer {credential.credential}"}
        self._http = httpx.AsyncClient(base_url=settings.server, headers=headers, verify=tls or False, limits=KEPT_CONNECTIONS)
        self._changed = asyncio.Event()
        self._isolation = Isolation()
        self._ranks = NodeRanks(
            settings,
            folder,
            context.offer,
            self._http,
            self._isolation,
            vitals.gpu_percent,
            self._changed.set,
            context.engines,
            context.spawner,
        )
        self._sessions = ExecSessions(settings, folder, credential, self._ranks, self._isolation)
        readings = ReadingsSpool(folder.readings)
        self._reading_uploads = ReadingsUploader(self._http, readings)
        self._readings = ReadingRecorder(vitals.take, readings, self._reading_uploads.nudge, self._isolation)
        self._notices = notices or NoticeWatch(settings.notices)
        self._notices.on_notice = self._changed.set
        self._told = ConnectionRecord()
        self._channel = CoordinatorChannel(settings.channel_server, credential.credential, self, tls=tls)
        self._boot_id = uuid.uuid4().hex
        self._desired: Desired | None = None  # nothing is started or ended before the coordinator has spoken
        self._namespaces: list[StoreNamespace] = []
        self._serving = asyncio.Lock()
        other_user = settings.confinement.run_as is not None
        self._deletions = CheckpointDeletions(self._changed.set, settings.store_endpoints, distrusts_links=other_user)
        self._actions = ActionRunner(self._ranks, self._deletions, folder, settings.checkpoints, context.interface)
        self._observe_seconds = self._heartbeat_seconds = 5.0
        self._welcomed = asyncio.Event()
        self._leave = asyncio.Event()
        self._leaving = False
        self._leaving_told_at = 0.0  # monotonic

    async def run(self, stop: asyncio.Event, abandon: asyncio.Event) -> None:
        """Run until `stop` (end the ranks too), `abandon` (leave them to the next agent), or the coordinator removes the node."""
        self._folder.leaving.unlink(missing_ok=True)
        await self._ranks.open()
        await self._sessions.open()
        keep_running = self._isolation.keep_running
        reconciling = asyncio.create_task(keep_running("reconciling", self._reconcile_forever))
        works = self._ranks.works() | {
            "channel": self._connect_when_warm,
            "heartbeat": self._send_heartbeats,
            "readings": self._readings.run,
            "uploads of readings": self._reading_uploads.run,
            "notices": self._notices.run,
        }
        others = [asyncio.create_task(keep_running(name, work)) for name, work in works.items()]
        ends = [asyncio.create_task(_wait(end)) for end in (stop, abandon, self._leave)]
        ends.append(asyncio.create_task(self._notices.until_last_seconds()))
        tasks = [reconciling, *others, *ends]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            refusal = _refusal(done)
            if not abandon.is_set() and (refusal is None or refusal.removed):
                removed = refusal is not None or (self._leave.is_set() and self._notices.notice is None)
                await self._end_everything(reconciling, REMOVED_GRACE_SECONDS if removed else math.inf)
                if self._is_gone(refusal):
                    with self._isolation.of(f"{self._folder.credential}, which is void"):
                        self._folder.credential.unlink(missing_ok=True)
            if refusal is not None:
                raise refusal
        finally:
            await _cancel(tasks)
            await self._sessions.close()
            await self._ranks.close()
            await self._http.aclose()

    def _is_gone(self, refusal: ChannelRefusedError | None) -> bool:
        """Whether the coordinator has removed the node for good: the credential is void, and must not go before a new join token."""
        if refusal is not None:
            return refusal.credential_is_void
        notice = self._notices.notice
        return self._leave.is_set() and (notice is None or not notice.returns)

    async def _connect_when_warm(self) -> None:
        """Connect once ranks can be forked at once: a node that is ready too early keeps its first job waiting for torch."""
        await asyncio.gather(self._ranks.until_warm(WARM_UP_SECONDS), asyncio.to_thread(schema))  # the first rank needs that, too
        await self._channel.run()

    async def _end_everything(self, reconciling: asyncio.Task[None], most_seconds: float) -> None:
        """End all ranks. Each has its own grace, of at most so many seconds. The coordinator keeps getting reports: a node whose ranks
        save is not lost."""
        grace = min(most_seconds, self._ranks.longest_grace())
        log.info("leaving: ending ranks and spawner; ranks have up to %g s", grace)
        self._leaving = True
        with self._isolation.of(f"{self._folder.leaving}, for the tasks that wait"):
            self._folder.leaving.write_text(f"{time.time() + grace:.3f}")
        await self._channel.send(Leaving())
        await _cancel([reconciling])
        await self._sessions.close()
        ending = asyncio.create_task(self._ranks.end_all(grace))
        while not ending.done():
            await asyncio.wait([ending], timeout=TICK_SECONDS)
            await self._report()
            if time.monotonic() - self._leaving_told_at >= self._heartbeat_seconds and await self._channel.send(Leaving()):
                self._leaving_told_at = time.monotonic()
        await ending
        await self._channel.send(bounded_report(self._observation()))
        self._folder.leaving.unlink(missing_ok=True)

    # -- the coordinator (client.Loop)

    def hello(self) -> AgentHello:
        return AgentHello(
            protocol=PROTOCOL_VERSION,
            agent_version=agent_version(),
            boot_id=self._boot_id,
            inventory=msgspec.structs.replace(self._context.inventory, ends_at=self._notices.ends_at),
            address=self._context.address,
            store_port=self._context.store_port,
            runs_commands=True,
        )

    def may_give_up(self) -> bool:
        return not self._ranks.any_alive()

    async def on_welcome(self, welcome: Welcome) -> None:
        self._heartbeat_seconds, self._observe_seconds = welcome.heartbeat_seconds, welcome.observe_seconds
        self._told = ConnectionRecord(takes_notices=welcome.takes_notices)
        self._ranks.retry_uploads()
        self._welcomed.set()
        self._changed.set()

    async def on_desired(self, desired: Desired) -> None:
        if self._desired is not None and desired.revision < self._desired.revision and self._told.has_spoken:
            return  # overtaken on its way
        self._desired, self._told.has_spoken = desired, True
        await self._serve_stores()
        self._changed.set()
        if desired.leave:
            log.info("%s", LEFT_UPON_NOTICE if self._notices.notice is not None else REMOVED)
            self._leave.set()

    async def on_open_exec(self, order: OpenExec) -> None:
        if not self._leaving:
            self._sessions.start(order)

    async def _serve_stores(self) -> None:
        """Serve the stores of what is desired by now. The channel and reconciling take turns: one that is slow with what was desired before would end
        the stores that the other has opened since."""
        async with self._serving:
            namespaces = [] if self._desired is None else store_namespaces(self._desired, self._ranks.ranks)
            for new in namespaces:
                await self._store.admit(new.job_id, new.generation, new.token, at_boundary=new.at_boundary)
            for old in self._namespaces:
                if old not in namespaces:
                    await self._store.retire(old.job_id, old.generation)
            self._namespaces = namespaces
            self._ranks.serve_stores_of({GenerationKey(each.job_id, each.generation) for each in namespaces})

    async def _send_heartbeats(self) -> None:
        while True:
            await self._welcomed.wait()
            self._welcomed.clear()
            try:
                while not self._leaving and self._channel.is_connected:
                    await self._channel.send(self._heartbeat())  # one that does not get through is followed by the next
                    await asyncio.sleep(self._heartbeat_seconds)
            except Exception:
                self._welcomed.set()  # started over, this must not wait for another welcome
                raise

    def _heartbeat(self) -> Heartbeat:
        backlog = 0
        with self._isolation.of("the backlog of uploads"):
            backlog = self._ranks.backlog()
        return self._vitals.heartbeat(backlog)

    # -- reconciling

    async def _reconcile_forever(self) -> None:
        while True:
            await self.step_once()
            try:
                async with asyncio.timeout(until_beat(TICK_SECONDS, time.monotonic()) if self._ranks.ranks else self._observe_seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass  # a tick: requests to pause are repeated, where there are ranks
            self._changed.clear()

    async def step_once(self) -> None:
        if self._desired is not None:
            for action in reconcile(self._desired, self._ranks.ranks, time.time()):
                with self._isolation.of(described(action)):
                    self._actions.carry_out(action, self._desired)
            await self._serve_stores()
        self._sessions.end_without_rank()
        await self._tell_notice()
        await self._report()

    async def _tell_notice(self) -> None:
        """Tell each coordinator that takes notices of the present one; an earlier end is told again."""
        notice = self._notices.notice
        told = self._told
        if notice is None or notice is told.notice or not told.takes_notices:
            return
        now_told = msgspec.structs.replace(notice, ends_at=self._notices.ends_at or notice.ends_at)  # the clock may have been set since
        if await self._channel.send(now_told):
            told.notice = notice

    # -- reporting

    def _observation(self) -> Observed:
        desired = self._desired or Desired(revision=0, assignments=())
        self._deletions.forget_all_but({checkpoint.id for checkpoint in desired.delete_checkpoints})
        return self._ranks.masked(observe(desired, self._ranks.ranks, tuple(sorted(self._deletions.done)), time.monotonic()))

    async def _report(self) -> None:
        """Report a change of state at once; what ranks may change as often as they like, some times a second; mere progress, or nothing new,
        every `observe_seconds`."""
        observed, now = self._observation(), time.monotonic()
        told = self._told
        due = now - told.observed_at >= self._observe_seconds
        is_news = told.observed is None or _without_progress(observed) != _without_progress(told.observed)
        if is_news and told.observed is not None and now - told.observed_at < SHORTEST_REPORT_SECONDS:
            is_news = _without_conduct(observed) != _without_conduct(told.observed)  # what is left out goes with the next tick
        if (due or is_news) and await self._channel.send(bounded_report(observed)):
            told.observed, told.observed_at = observed, now


def _without_progress(observed: Observed) -> Observed:
    return _without(observed, step=0, progress_age=None)


def _without_conduct(observed: Observed) -> Observed:
    """The report without what a rank can change again and again: a script that stalls and moves by turns, or stops and continues itself, must not
    have its node report as often."""
    return _without(observed, step=0, progress_age=None, stall=None, suspended=False, quiet_since=None)


def _without(observed: Observed, **fields: Any) -> Observed:
    replace = msgspec.structs.replace
    return replace(
        observed,
        assignments=tuple(
            replace(assignment, ranks=tuple(replace(rank, **fields) for rank in assignment.ranks)) for assignment in observed.assignments
        ),
    )


def _refusal(done: set[asyncio.Task[None]]) -> ChannelRefusedError | None:
    """The refusal that ended one of these tasks, if any. Any other exception is a bug, and raised here."""
    for task in done:
        error = task.exception()
        if isinstance(error, ChannelRefusedError):
            return error
        if error is not None:
            raise error
    return None


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
