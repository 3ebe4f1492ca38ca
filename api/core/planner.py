"""Calculates plans: never in the event loop, never for longer than a limit, one large one at a time."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from paceline.api.errors import ProblemError
from paceline.location import ROOT

T = TypeVar("T")
WORKER = "paceline.training.planning.worker"
#: A result is the same for the same question, and forms ask after each keystroke.
REMEMBERED = 64


@dataclass
class Planner:
    """Runs pure functions of specs. `limit_seconds` is for one call; a call that waits as long for its turn gets a problem that the
    coordinator is busy."""

    limit_seconds: float = 20.0
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    _known: OrderedDict[bytes, Any] = field(default_factory=OrderedDict)

    async def run(self, work: Callable[..., T], *arguments: Any, small: bool) -> T:
        """The result of `work(*arguments)`: of a small one from a thread, else from a process that is killed when its time is over.

        Raises the ValueError that it raises, and a ProblemError when it takes too long."""
        if small:
            return await asyncio.to_thread(work, *arguments)
        question = pickle.dumps((work, arguments))
        if question not in self._known:
            self._known[question] = await self._ask(question)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        done, result = self._known[question]
        if not done:
            raise result
        found: T = result
        return found

    async def _ask(self, question: bytes) -> tuple[bool, Any]:
        try:
            await asyncio.wait_for(self._turn.acquire(), self.limit_seconds)
        except TimeoutError:
            raise ProblemError("busy", "other plans are being made; try again", headers={"Retry-After": "5"}) from None
        try:
            return await self._answer(question)
        finally:
            self._turn.release()

    async def _answer(self, question: bytes) -> tuple[bool, Any]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", WORKER, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            answer, said = await asyncio.wait_for(process.communicate(question), self.limit_seconds)
        except TimeoutError:
            raise ProblemError(
                "plan_too_large",
                f"this plan was not made within {self.limit_seconds:g} s; ask for fewer nodes, or name the strategy and the sizes of its axes "
                "(parallelism.tensor, pipeline, context) instead of auto",
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise RuntimeError(f"{WORKER} exited {process.returncode}: {said[-2000:].decode(errors='replace')}")
        found: tuple[bool, Any] = pickle.loads(answer)
        return found
