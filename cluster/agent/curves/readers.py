"""The agent's side of the processes that read the files of scripts into curves: one process for each generation of a job that runs here."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.confinement import Confinement, inherited_environment
from paceline.cluster.agent.curves.link import Watch, WatchedRank, read_decoder
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.ranks.launch import starts_in_empty_work
from paceline.cluster.agent.ranks.ranks import RankPhase, RankRecord
from paceline.cluster.protocol import RankKey
from paceline.location import ROOT
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.lines import encode_line
from paceline.training.rank_folder import RankFolder

#: A rank that has ended is waited for so long, before what it left is sent as it is.
LAST_READ_SECONDS = 6.0
FIRST_RESTART_SECONDS = 1.0
LONGEST_RESTART_SECONDS = 30.0
STOP_SECONDS = 1.0

#: Where `cluster` can be imported from.

log = logging.getLogger(__name__)

Group = tuple[str, int]  # job, generation


class ReaderProcess:
    """Runs one reader process, and a new one where it ends too early. `on_read` is called with each rank whose files are read to the
    end."""

    def __init__(self, group: Group, watch: Watch, start: Callable[[], Any], on_read: Callable[[int], None], isolation: Isolation) -> None:
        self._group, self._start, self._on_read, self._isolation = group, start, on_read, isolation
        self.watch = watch
        self._pipe: asyncio.StreamWriter | None = None
        self._task = asyncio.create_task(self._run())

    def update(self, watch: Watch) -> None:
        if watch != self.watch:
            self.watch = watch
            self._send()

    def _send(self) -> None:
        if self._pipe is not None and not self._pipe.is_closing():
            self._pipe.write(encode_line(self.watch))

    async def _run(self) -> None:
        backoff = Backoff(FIRST_RESTART_SECONDS, LONGEST_RESTART_SECONDS)
        while True:
            try:
                ended = await self._run_once()
                log.warning("the reader of the curves of %s ended with code %d; starting another", self._group, ended)
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns these curves alone
                self._isolation.report(f"curves of {self._group}", error)
            await backoff.pause()

    async def _run_once(self) -> int:
        process: asyncio.subprocess.Process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        self._pipe = process.stdin
        try:
            self._send()
            async for line in process.stdout:
                self._on_read(read_decoder.decode(line).rank)
            return await process.wait()
        finally:
            self._pipe.close()
            self._pipe = None
            await _end(process)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a reader process by closing its standard input; a stuck one is killed and not waited for."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


class CurveReaders:
    def __init__(self, confinement: Confinement, account: Account | None, isolation: Isolation) -> None:
        self._confinement, self._account, self._isolation = confinement, account, isolation
        self._processes: dict[Group, ReaderProcess] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._waiting: dict[RankKey, Callable[[], None]] = {}  # called once nothing is left to read of an ended rank
        self._idle = asyncio.Event()  # no rank is waited for
        self._idle.set()

    def update(self, ranks: Mapping[RankKey, RankRecord], ended: Collection[RankKey] = ()) -> None:
        """Follow scripts that run here; `ranks` are all of this node, and `ended` those that have just turned out to have ended."""
        groups: dict[Group, list[RankRecord]] = {}
        for key, rank in ranks.items():
            if rank.is_script and rank.pid is not None and not rank.drained:
                groups.setdefault((key.job_id, key.generation), []).append(rank)
        directories = {group: _directory(members[0]) for group, members in groups.items()}
        for group, members in groups.items():
            known = self._processes.get(group)
            if known is None and all(rank.phase is RankPhase.EXITED and rank.key not in ended for rank in members):
                continue
            others = {folder for other, folder in directories.items() if folder is not None and other[0] != group[0]}
            watch = _watch(members, others | set(known.watch.neighbours if known else ()))
            if known is None:
                on_read = functools.partial(self._read, group)
                self._processes[group] = ReaderProcess(group, watch, self._start, on_read, self._isolation)
            else:
                known.update(watch)
        for group in self._processes.keys() - groups.keys():
            self._stop(group)

    def when_read(self, key: RankKey, call: Callable[[], None]) -> None:
        """Call `then` once the files of an ended rank are read; at once where no reader runs."""
        if (key.job_id, key.generation) not in self._processes:
            return call()
        self._waiting[key] = call
        self._idle.clear()
        asyncio.get_running_loop().call_later(LAST_READ_SECONDS, self._done, key)
        return None

    async def finish(self) -> None:
        """Wait until the files of all ended ranks are read, or a time limit is over."""
        await self._idle.wait()

    async def close(self) -> None:
        await asyncio.gather(*(process.stop() for process in self._processes.values()), *self._stopping)
        self._processes.clear()

    def _read(self, group: Group, rank: int) -> None:
        self._done(RankKey(*group, rank))

    def _done(self, key: RankKey) -> None:
        call = self._waiting.pop(key, None)
        if not self._waiting:
            self._idle.set()
        if call is not None:
            call()

    def _stop(self, group: Group) -> None:
        task = asyncio.create_task(self._processes.pop(group).stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _start(self) -> asyncio.subprocess.Process:
        """Start a reader with the environment that ranks get, as the user that ranks run as."""
        account = self._account
        identity: dict[str, Any] = {} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "paceline.cluster.agent.curves.main",
            cwd=ROOT,
            env=inherited_environment(os.environ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            umask=self._confinement.umask,
            start_new_session=True,
            **identity,
        )


def _watch(members: list[RankRecord], neighbours: set[str]) -> Watch:
    first = members[0].order
    return Watch(
        ranks=tuple(
            WatchedRank(rank.order.world.rank, rank.order.folder, rank.pid, rank.phase is RankPhase.EXITED)
            for rank in sorted(members, key=lambda rank: rank.order.world.rank)
        ),
        directory=_directory(members[0]),
        log_folder=str(RankFolder.at(Path(first.folder)).logs),
        started=min(_started(rank) for rank in members),
        neighbours=tuple(sorted(neighbours)),
    )


def _directory(rank: RankRecord) -> str | None:
    if starts_in_empty_work(rank.order.spec):
        work = RankFolder.at(Path(rank.order.folder)).work
        return str(work) if work.exists() else None  # an older agent started it in the rank's own folder
    return rank.order.working_directory


def _started(rank: RankRecord) -> float:
    """The time when a rank was started. Its order was written just before, by this agent or an earlier one."""
    try:
        return RankFolder.at(Path(rank.order.folder)).order.stat().st_mtime
    except OSError:
        return time.time()
