"""The environments that this node has built: found by key, built once at a time, evicted when they are old or too large.

    DATA/environments/KEY.lock     held while KEY is built, by the agent and by every process of the build
    DATA/environments/KEY/         the environment; whole if `ready.json` is in it, else the rest of a build that was ended

The lock is of the kernel (flock) and goes with the last process that has it: a build that outlives its agent keeps the next agent waiting, and one
that is killed leaves nothing to be cleared by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.environments.node_python import NodePython
from paceline.cluster.agent.environments.uv import BuildFailedError, Say, UvBuild
from paceline.cluster.agent.removal import remove_tree
from paceline.monitoring.files import UnfitFileError, read_file, write_durably
from paceline.monitoring.words import plural

#: The most of all environments of a node. Files that uv shares with its cache are counted in full.
MOST_BYTES = 40 << 30
#: Without a job.
MOST_IDLE_SECONDS = 14 * 24 * 3600.0
MOST_READY_BYTES = 4 << 20
LOCK_POLL_SECONDS = 0.2
READY, LOCK = "ready.json", ".lock"
ENTERED_BY_ALL = 0o755

log = logging.getLogger(__name__)


class ReadyRecord(msgspec.Struct, frozen=True):
    """The content of `ready.json`."""

    requirements: tuple[str, ...]
    installed: tuple[str, ...]
    bytes: int
    seconds: float


class BuiltEnvironments:
    """`in_use`: the keys of environments that ranks or spawners live in."""

    def __init__(
        self,
        folder: Path,
        account: Account | None,
        variables: Mapping[str, str],
        in_use: Callable[[], Collection[str]],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._folder, self._account, self._variables, self._in_use, self._most_bytes = folder, account, variables, in_use, most_bytes
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._claims = threading.Lock()  # between claims and evictions

    async def interpreter(self, python: NodePython, requirements: tuple[str, ...], *, own_torch: bool, say: Say) -> tuple[str, Path]:
        """The key and the interpreter of the environment with these requirements, which is built if it is not here. `say` gets each line of the
        build. Raises BuildFailedError and OSError."""
        key = python.key(requirements, own_torch=own_torch)
        place = self._folder / key
        while not self._claim(place):
            if self._turns[key].locked():
                say("another rank or job of this node builds this environment; waiting for it")
            async with self._turns[key]:
                if not self._is_ready(place):
                    await self._build(key, python, requirements, own_torch=own_torch, say=say)
        return key, place / "venv" / "bin" / "python"

    def _claim(self, place: Path) -> bool:
        """Note that an environment is used now, so that no eviction takes it. False: it is not built, or one has just taken it."""
        with self._claims, contextlib.suppress(FileNotFoundError):
            os.utime(place / READY, follow_symlinks=False)
            return True
        return False

    def _is_ready(self, place: Path) -> bool:
        return (place / READY).exists()

    async def _build(self, key: str, python: NodePython, requirements: tuple[str, ...], *, own_torch: bool, say: Say) -> None:
        place, began = self._folder / key, time.monotonic()
        self._folder.mkdir(mode=ENTERED_BY_ALL, exist_ok=True)
        self._folder.chmod(ENTERED_BY_ALL)
        held = await self._hold(key, say)
        try:
            if self._is_ready(place):
                return
            say(
                f"installing {plural(len(requirements), 'requirement')} on top of torch {python.torch}"
                if not own_torch
                else "installing with a torch of its own"
            )
            await asyncio.to_thread(self._clear, place)
            build = UvBuild(python, place, self._variables, self._account, held.fileno(), say)
            installed = await build.run(requirements, own_torch=own_torch)
            size, seconds = await asyncio.to_thread(_bytes_below, place), time.monotonic() - began
            ready = ReadyRecord(requirements, tuple(installed), size, seconds)
            write_durably(place / READY, msgspec.json.encode(ready))
            say(f"installed {plural(len(installed), 'package')} in {seconds:.1f} s")
        finally:
            held.close()
        try:
            await asyncio.to_thread(self.evict, time.time(), key)
        except OSError as error:  # which is no reason to refuse the rank that this one was built for
            log.warning("environments that no job uses are not removed: %s", error)

    async def _hold(self, key: str, say: Say) -> IO[bytes]:
        """The lock of an environment. It may be held by a build that an agent before this one has left behind, whose end is waited for."""
        file = open(self._folder / f"{key}{LOCK}", "ab")  # noqa: SIM115, ASYNC230 - closed by the caller; an empty local file
        waits = False
        try:
            while not _locked(file):
                if not waits:
                    say("another process builds this environment; waiting for it")
                waits = True
                await asyncio.sleep(LOCK_POLL_SECONDS)
        except BaseException:
            file.close()
            raise
        return file

    def _clear(self, place: Path) -> None:
        if place.exists():
            remove_tree(place)
        place.mkdir(mode=ENTERED_BY_ALL)
        place.chmod(ENTERED_BY_ALL)
        if self._account is not None:
            self._account.own(place)

    def evict(self, now: float, keep: str = "") -> None:
        """Remove environments that no job has used for long, and those used longest ago while there are too many bytes. Never one that is in use,
        or that another process builds. `now`: the wall clock."""
        used, total = {keep, *self._in_use()}, 0
        found = sorted(self._found(), key=lambda each: each[1], reverse=True)  # newest first
        for place, used_at, size in found:
            total += size
            if place.name in used or (total <= self._most_bytes and now - used_at <= MOST_IDLE_SECONDS):
                continue
            with open(self._folder / f"{place.name}{LOCK}", "ab") as lock:
                if _locked(lock) and self._give_up(place, used_at):
                    total -= size
                    self._remove(place)

    def _give_up(self, place: Path, used_at: float) -> bool:
        """Make an environment one that is not built, unless it has come into use since it was looked at, which may be minutes ago."""
        with self._claims:
            try:
                if (place / READY).lstat().st_mtime != used_at or place.name in self._in_use():
                    return False
                (place / READY).unlink()
            except (FileNotFoundError, IsADirectoryError):
                pass  # the rest of a build, or what a job has put there
            except OSError as error:
                log.warning("%s cannot be removed: %s; tried again later", place, error)
                return False
        return True

    def _remove(self, place: Path) -> None:
        log.info("removing the environment %s, which no job uses", place.name)
        try:
            remove_tree(place)
        except OSError as error:
            log.warning("%s cannot be removed: %s; tried again later", place, error)

    def _found(self) -> Iterator[tuple[Path, float, int]]:
        """Each environment, when it was used last, and its bytes. The rest of an ended build has been used when it was begun. An environment belongs to
        the ranks' user, who may have put anything in the place of its `ready.json`: then it counts as such a rest."""
        for place in self._folder.iterdir() if self._folder.is_dir() else ():
            if not place.is_dir():
                continue
            try:
                ready = msgspec.json.decode(read_file(place / READY, MOST_READY_BYTES, owner=os.geteuid()), type=ReadyRecord)
                yield place, (place / READY).lstat().st_mtime, ready.bytes
            except FileNotFoundError:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    yield place, place.stat().st_mtime, _bytes_below(place)
            except (UnfitFileError, msgspec.DecodeError):
                with contextlib.suppress(FileNotFoundError):
                    yield place, (place / READY).lstat().st_mtime, _bytes_below(place)


def _locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bytes_below(folder: Path) -> int:
    """The bytes of the files below a folder, but for those that are removed meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


__all__ = ["BuildFailedError", "BuiltEnvironments", "ReadyRecord"]
