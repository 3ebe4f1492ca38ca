"""A copy of the objects of one kind that an API server has, kept current by a watch.

It goes as "Efficient detection of changes" of Kubernetes' own API concepts has it: a list, then a watch from the list's version on. A watch that ended goes on
from the last version that it told; where the server has forgotten what came after that (410), the list is asked for again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from paceline.cluster.provisioners.kubernetes_client import KubernetesApiError, KubernetesClient, KubernetesUnreachableError
from paceline.cluster.provisioners.provisioner import ProvisionerError

logger = logging.getLogger(__name__)
#: A watch that nobody has asked for so long is not begun again.
IDLE_SECONDS = 180.0
#: A role that lacks the verb may be mended meanwhile.
FORBIDDEN_SECONDS = 600.0
#: A watch that lasted so long went well: the next one begins at once.
STEADY_SECONDS = 5.0
SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 30.0


@dataclass
class WatchedObjects:
    """The objects of one kind with a label. Without a watch, as before the first and while its connection is lost, each question is a list."""

    client: KubernetesClient
    group: str
    plural: str
    selector: str
    _copy: dict[str, dict[str, Any]] = field(default_factory=dict)  # by uid
    _version: str = ""  # of the copy; empty: there is none
    _is_current: bool = False
    _asked_at: float = 0.0
    _was_refused: bool = False
    _task: asyncio.Task[None] | None = None

    async def objects(self) -> list[dict[str, Any]]:
        """All objects, at most a moment old. Raises ProvisionerError."""
        self._asked_at = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"watch of {self.plural}")
        if self._is_current:
            return list(self._copy.values())
        return (await self.client.objects(self.group, self.plural, self.selector)).items

    async def close(self) -> None:
        """End the watch, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        """Watch until nobody asks any more. What goes wrong is tried again, less and less often."""
        loop, failures = asyncio.get_running_loop(), 0
        while (began := loop.time()) - self._asked_at < IDLE_SECONDS:
            seconds = 0.0
            try:
                await self._follow()
            except ProvisionerError as error:
                seconds = self._after(error)
            finally:
                self._is_current = False
            failures = 0 if loop.time() - began >= STEADY_SECONDS else failures + 1
            if failures:
                again = min(SHORTEST_WAIT_SECONDS * 2.0 ** min(failures - 1, 10), LONGEST_WAIT_SECONDS)
                seconds = max(seconds, again * random.uniform(0.5, 1.0))
            await asyncio.sleep(seconds)
        self._copy, self._version = {}, ""

    async def _follow(self) -> None:
        """One watch from its begin to its end, after a list where there is no copy. Raises ProvisionerError."""
        if not self._version:
            listed = await self.client.objects(self.group, self.plural, self.selector)
            self._copy, self._version = {each["metadata"]["uid"]: each for each in listed.items}, listed.version
        async with self.client.watch(self.group, self.plural, self.selector, self._version) as lines:
            self._is_current = True
            async for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        """Apply one event to the copy. Raises KubernetesApiError where the server says that it cannot go on, ProvisionerError where it says no event."""
        try:
            event = json.loads(line)
            kind, found = event["type"], event["object"]
            if kind == "ERROR":
                said = str(found.get("message", ""))[:500]
                raise KubernetesApiError(
                    int(found.get("code", 0)), f"Kubernetes ended a watch of {self.plural}: {said}", "nothing: it is listed again"
                )
            if kind == "DELETED":
                self._copy.pop(found["metadata"]["uid"], None)
            elif kind in ("ADDED", "MODIFIED"):
                self._copy[found["metadata"]["uid"]] = found
            self._version = found["metadata"]["resourceVersion"]  # a bookmark has nothing else
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProvisionerError(f"Kubernetes said no event in a watch of {self.plural}: {line[:200]!r}") from error

    def _after(self, error: ProvisionerError) -> float:
        """Note how a watch ended. Returns the seconds to wait at least before the next one. One whose connection was lost goes on where it was; after
        anything else, such as a version that the server has forgotten (410), the objects are listed anew."""
        if not isinstance(error, KubernetesUnreachableError):
            self._version = ""
        if isinstance(error, KubernetesApiError) and error.status == httpx.codes.FORBIDDEN:
            if not self._was_refused:
                logger.warning(
                    "%s are listed at each look, since they may not be watched: %s; remedy: %s", self.plural, error, error.remedy
                )
            self._was_refused = True
            return FORBIDDEN_SECONDS
        logger.info("the watch of %s begins again: %s", self.plural, error)
        return 0.0
