"""Puts the code that was sent along with a job into the job's own folder on this node, once, before its first rank starts there.

Archives are kept in a folder of the agent's by their digest, so that the second job with the same code fetches nothing; the ones that were
used longest ago go first when there are too many. A folder is unpacked beside the archives and then renamed: ranks see all of it or none.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx

from paceline.bundles.archive import MOST_PACKED_BYTES, digest_of, unpack
from paceline.bundles.errors import DamagedBundleError
from paceline.cluster.agent.account import Account
from paceline.cluster.agent.removal import remove_tree
from paceline.cluster.agent.upload.transfer import refuses_for_good
from paceline.cluster.protocol import BUNDLES_PATH
from paceline.monitoring.backoff import Backoff
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder

#: The most of all archives that are kept.
CACHE_BYTES = 2 << 30
REQUEST_TIMEOUT_SECONDS = 60.0
#: For which a coordinator may be away, or give what is no bundle; while its bytes come no time is counted.
FETCH_SECONDS = 120.0
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 8.0
ARCHIVE, UNFINISHED = ".tar.zst", "unfinished-"

#: Of a name that a file system does not take.
_OF_NAMES = frozenset({errno.ENAMETOOLONG, errno.EILSEQ})

_AS_IT_IS = {"Accept-Encoding": "identity"}  # it is compressed already

log = logging.getLogger(__name__)


class CodeNotFetchedError(Exception):
    """The job's code could not be put on this node. The message says why."""


class CodeRefusedError(CodeNotFetchedError):
    """The coordinator has no such code, or it is such that it cannot be unpacked here: another try will not help."""


class JobCode:
    """The code of this node's jobs. `folder`: for archives, on the same file system as the folders of jobs."""

    def __init__(self, http: httpx.AsyncClient, folder: Path, account: Account | None, cache_bytes: int = CACHE_BYTES) -> None:
        self._http, self._folder, self._account, self._cache_bytes = http, folder, account, cache_bytes
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def clear(self) -> None:
        """Remove what an earlier agent did not finish."""
        for path in self._folder.glob(f"{UNFINISHED}*"):
            try:
                remove_tree(path) if path.is_dir() else path.unlink()
            except OSError as error:
                log.warning("%s cannot be removed: %s", path, error)

    async def place(self, order: RankOrder) -> None:
        """Put the code of the order's job into the job's folder, unless it is there. Raises CodeNotFetchedError; CodeRefusedError where another
        try will not help."""
        code = order.job_spec.environment.code
        if code is None:
            return
        work = RankFolder.at(Path(order.folder)).work
        async with self._turns[code.bundle]:
            if work.exists():
                return
            try:
                await self._unpack(await self._archive(code.bundle), code.bundle, work)
            except (OSError, DamagedBundleError) as error:
                what = f"the job's code ({code.bundle[:12]}) cannot be unpacked on this node"
                if await self._is_to_blame(code.bundle, error):
                    raise CodeRefusedError(f"{what}: {error}; change it, and submit the job anew") from error
                self._archive_path(code.bundle).unlink(missing_ok=True)  # another try fetches it anew
                raise CodeNotFetchedError(f"{what}: {error}") from error

    async def _is_to_blame(self, digest: str, error: OSError | DamagedBundleError) -> bool:
        """Whether it is the code itself that cannot be unpacked, and not this node's disk or what is left there of the archive."""
        if isinstance(error, OSError):
            return error.errno in _OF_NAMES
        try:
            found, _ = await asyncio.to_thread(_digest_of_file, self._archive_path(digest))
        except (OSError, DamagedBundleError):
            return False
        return found == digest

    async def _unpack(self, packed: IO[bytes], digest: str, work: Path) -> None:
        unfinished = self._unfinished()
        try:
            await asyncio.to_thread(self._unpack_into, packed, digest, unfinished)
            unfinished.rename(work)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(_discard, unfinished))
            raise

    def _unpack_into(self, packed: IO[bytes], digest: str, folder: Path) -> None:
        with packed:
            unpack(packed, digest, folder)
        if self._account is not None:
            for place, _, names in os.walk(folder):
                for path in (Path(place), *(Path(place, name) for name in names)):
                    self._account.own(path)

    async def _archive(self, digest: str) -> IO[bytes]:
        """The archive with this digest, fetched if it is not here. It is open: what another launch evicts can still be read."""
        path = self._archive_path(digest)
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
            return open(path, "rb")  # noqa: ASYNC230 - closed when it is unpacked; a local file
        self._folder.mkdir(mode=0o700, exist_ok=True)
        backoff, unfinished = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS), self._unfinished()
        why: str | None = "no answer"
        try:
            async with asyncio.timeout(FETCH_SECONDS) as deadline:
                while (why := await self._fetch(digest, unfinished, deadline)) is not None:
                    log.warning("the code %s is not fetched: %s; trying again", digest[:12], why)
                    await backoff.pause()
        except TimeoutError:
            raise CodeNotFetchedError(f"the job's code ({digest[:12]}) was not fetched within {FETCH_SECONDS:g} s: {why}") from None
        finally:
            unfinished.unlink(missing_ok=True)
        try:
            await asyncio.to_thread(self._evict, path)
        except OSError as error:  # which says nothing about the archive that has come
            log.warning("archives of code that were used longest ago are not removed: %s", error)
        return open(path, "rb")  # noqa: ASYNC230 - closed when it is unpacked; a local file

    async def _fetch(self, digest: str, into: Path, deadline: asyncio.Timeout) -> str | None:
        """Fetch an archive into the cache by way of the file `into`. Returns why another try may succeed. Raises CodeRefusedError where
        none will. The time in which bytes come moves the `deadline`."""
        try:
            async with self._http.stream("GET", f"{BUNDLES_PATH}/{digest}", headers=_AS_IT_IS, timeout=REQUEST_TIMEOUT_SECONDS) as response:
                if refuses_for_good(response):
                    raise CodeRefusedError(f"the coordinator does not have the job's code ({digest[:12]}) any more; submit the job anew")
                if response.status_code != httpx.codes.OK:
                    return f"the coordinator answered {response.status_code}"
                with _held(deadline):
                    size = await _save(response, into)
            if size > MOST_PACKED_BYTES:
                raise CodeRefusedError(f"the job's code ({digest[:12]}) has more than {MOST_PACKED_BYTES:,} bytes")
            found, _ = await asyncio.to_thread(_digest_of_file, into)
        except (httpx.HTTPError, DamagedBundleError) as error:
            return str(error) or type(error).__name__
        if found != digest:
            return f"what came has the digest {found[:12]}"
        into.rename(self._archive_path(digest))
        return None

    def _evict(self, used: Path) -> None:
        """Delete the archives that were used longest ago, until the rest may stay. `used` is never deleted."""
        archives: list[tuple[float, int, Path]] = []
        for path in self._folder.glob(f"*{ARCHIVE}"):
            with contextlib.suppress(FileNotFoundError):  # deleted for another launch
                found = path.stat()
                archives.append((found.st_mtime, found.st_size, path))
        kept = sum(size for _, size, _ in archives)
        for _, size, path in sorted(archives):
            if kept <= self._cache_bytes:
                return
            if path != used:
                kept -= size
                path.unlink(missing_ok=True)

    def _archive_path(self, digest: str) -> Path:
        return self._folder / f"{digest}{ARCHIVE}"

    def _unfinished(self) -> Path:
        return self._folder / f"{UNFINISHED}{uuid.uuid4().hex}"


@contextlib.contextmanager
def _held(deadline: asyncio.Timeout) -> Iterator[None]:
    """Move a deadline by the time that is spent within."""
    loop, when = asyncio.get_running_loop(), deadline.when()
    assert when is not None
    left = when - loop.time()
    deadline.reschedule(None)
    try:
        yield
    finally:
        deadline.reschedule(loop.time() + left)


async def _save(response: httpx.Response, into: Path) -> int:
    """Write a body to a file, up to what a bundle may have. Returns its bytes."""
    size = 0
    with open(into, "wb") as file:  # noqa: ASYNC230 - a local file, whose blocks go to memory first
        async for piece in response.aiter_bytes():
            file.write(piece)
            size += len(piece)
            if size > MOST_PACKED_BYTES:
                break
    return size


def _digest_of_file(path: Path) -> tuple[str, int]:
    with open(path, "rb") as packed:
        return digest_of(packed)


def _discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
