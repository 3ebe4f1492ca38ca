"""The exec sessions of a node: a keeper process for each, which the agent starts, ends with its rank, and cleans up after."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.confinement import inherited_environment
from paceline.cluster.agent.exec_sessions.order import EndKeeper, KeeperOrder, encode_for_keeper
from paceline.cluster.agent.exec_sessions.surroundings import SESSION_VARIABLE, environment_of, surroundings_of
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.join import Credential
from paceline.cluster.agent.processes import AGENT_DATA_VARIABLE, send_signal, with_variables
from paceline.cluster.agent.ranks.launch import NoCardError, SlotCards
from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.cluster.agent.settings import AgentSettings
from paceline.cluster.protocol import OpenExec, RankKey
from paceline.location import ROOT
from paceline.training.errors import UnreadableSpecError

#: More than the coordinator lets a node have.
MOST_KEEPERS = 64
END_SECONDS = 5.0
REMEMBERED = 1_000

log = logging.getLogger(__name__)


@dataclass
class _Kept:
    key: RankKey
    keeper: asyncio.subprocess.Process | None = None
    ending: bool = False


class LivingRanks(Protocol):
    """The part of the agent's ranks that a command beside them needs."""

    cards: SlotCards
    account: Account | None  # the user that ranks run as; None: the agent's own

    @property
    def ranks(self) -> Mapping[RankKey, RankRecord]: ...

    def secrets_of(self, job_id: str) -> Mapping[str, str]: ...


class ExecSessions:
    """The keepers of this node."""

    def __init__(
        self,
        settings: AgentSettings,
        folder: AgentFolder,
        credential: Credential,
        ranks: LivingRanks,
        isolation: Isolation,
    ) -> None:
        self._settings, self._folder, self._credential = settings, folder, credential
        self._living, self._isolation = ranks, isolation
        self._sessions: dict[str, _Kept] = {}
        self._seen: dict[str, None] = {}  # ids, the newest last: an order that comes twice is one
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """End what an agent before this one has left behind. Its keepers end by themselves; what they could not is killed."""
        await asyncio.to_thread(self._sweep, None)

    def start(self, order: OpenExec) -> None:
        """Start a keeper. Harmless the second time."""
        if order.id in self._seen or len(self._sessions) >= MOST_KEEPERS:
            return
        self._seen[order.id] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._sessions[order.id] = _Kept(order.key)
        task = asyncio.create_task(self._keep(order))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end_without_rank(self) -> None:
        """End the sessions whose ranks have ended, are about to, or have moved to another generation."""
        for kept in self._sessions.values():
            if not self._runs(kept.key):
                words = f"rank {kept.key.rank} of generation {kept.key.generation} has ended or moved on; a new session finds its successor"
                self._end(kept, EndKeeper(code="rank_ended", message=words))

    async def close(self) -> None:
        """End all sessions, and wait for that for END_SECONDS."""
        for kept in self._sessions.values():
            self._end(kept, EndKeeper(code="agent_ended", message=f"the agent of {self._settings.name} is leaving"))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=END_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _runs(self, key: RankKey) -> bool:
        rank = self._living.ranks.get(key)
        return rank is not None and rank.phase is RankPhase.ALIVE and rank.pid is not None and not rank.stopping

    def _end(self, kept: _Kept, word: EndKeeper) -> None:
        stdin = None if kept.keeper is None else kept.keeper.stdin
        if stdin is not None and not kept.ending and not stdin.is_closing():
            kept.ending = True
            stdin.write(encode_for_keeper(word))

    async def _keep(self, order: OpenExec) -> None:
        kept = self._sessions[order.id]
        try:
            with self._isolation.of("exec sessions"):
                await self._run_keeper(kept, order)
        finally:
            del self._sessions[order.id]

    async def _run_keeper(self, kept: _Kept, order: OpenExec) -> None:
        keeper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "paceline.cluster.agent.exec_sessions.keeper"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
            env=inherited_environment(os.environ, self._settings.confinement.pass_environment)
            | {AGENT_DATA_VARIABLE: str(self._folder.path)},
            start_new_session=True,
        )
        kept.keeper = keeper
        assert keeper.stdin is not None
        code = None
        try:
            keeper.stdin.write(encode_for_keeper(self._order(order)))
            code = await keeper.wait()
        finally:
            if code is None:
                send_signal([keeper.pid], signal.SIGKILL)
                await keeper.wait()
            if code != 0:
                await asyncio.to_thread(self._sweep, order.id)

    def _order(self, order: OpenExec) -> KeeperOrder:
        """The keeper's order, which is to refuse where the rank, or what it was started with, is not there."""
        rank, confinement = self._living.ranks.get(order.key), self._settings.confinement
        known = KeeperOrder(
            session_id=order.id,
            server=self._settings.channel_server,
            credential=self._credential.credential,
            authority=self._credential.authority or None,
            node=self._settings.name,
            rank=order.key.rank,
            generation=order.key.generation,
            account=confinement.run_as,
            umask=confinement.umask,
            memory_limit=confinement.memory_limit,
            groups=None if confinement.groups is None else str(confinement.groups),
        )
        if rank is None or not self._runs(order.key):
            return msgspec.structs.replace(known, refusal=f"rank {order.key.rank} does not run on {self._settings.name} any more")
        try:
            found = surroundings_of(rank.order, self._living.cards)
        except (OSError, msgspec.DecodeError, NoCardError, UnreadableSpecError) as error:
            return msgspec.structs.replace(known, refusal=f"what rank {order.key.rank} was started with cannot be read: {error}")
        also, data = confinement.pass_environment, self._folder.path
        environment = environment_of(
            found, os.environ, also, order.id, data, self._living.account, self._living.secrets_of(order.key.job_id)
        )
        return msgspec.structs.replace(known, environment=environment, directory=found.directory)

    def _sweep(self, session_id: str | None) -> None:
        """Kill what a keeper that was killed has left. None: of any session of this agent."""
        wanted = {AGENT_DATA_VARIABLE: str(self._folder.path)} | ({SESSION_VARIABLE: session_id} if session_id else {})
        send_signal(with_variables(wanted) if session_id else with_variables(wanted, named=SESSION_VARIABLE), signal.SIGKILL)
