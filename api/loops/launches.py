"""Carries launches through: asks their providers, joins what they say with what the nodes say, and gives up what will never join.

A launch is claimed before its provider is asked, by the time at which it is looked at again, so that two replicas do not ask at once. A coordinator
that is killed in between leaves a claim that runs out: everything is asked again, which a provider answers with the node that there is.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.loops.due_looks import DueLooks
from paceline.api.services.lifecycle import launch_lifecycle
from paceline.api.services.nodes import joining, launches, nodes
from paceline.api.settings import provider_secret
from paceline.cluster.provisioners import progress
from paceline.cluster.provisioners.progress import LaunchMove, LaunchView, ProviderCall
from paceline.cluster.provisioners.provisioner import (
    KeptResource,
    Provisioner,
    ProvisionerContext,
    ProvisionerError,
    SeenLaunch,
    WantedNode,
)
from paceline.cluster.provisioners.registry import ProvisionerFactory, make_provisioner
from paceline.cluster.states import OVER_LAUNCH_STATES, LaunchState, NodeState
from paceline.db.models.provisioning import LaunchRow
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import provisioning as rows

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 1.0
#: No call of a provider takes longer; what is slow is done behind it.
CALL_SECONDS = 60.0
CLAIM_SECONDS = CALL_SECONDS + 30.0
#: A step waits so long for providers; those that are slower are heard in a later one.
STEP_SECONDS = 5.0
LAUNCHES_A_STEP = 200
CALLS_AT_ONCE = 8
MOST_CHARACTERS, MOST_HANDLE = 1000, 256

T = TypeVar("T")
#: What follows from an answer, within a transaction in which the launch is locked. Returns why its node is to be drained, or nothing.
Change = Callable[[AsyncSession, LaunchRow, LaunchView, datetime], Awaitable[str]]


@dataclass(frozen=True)
class ClaimedLaunch:
    """A launch that this process looks at, as it was when it was claimed."""

    row: LaunchRow
    view: LaunchView
    call: ProviderCall


@dataclass
class LaunchKeeper:
    """Keeps nothing from step to step but the calls that are under way, and what providers keep open between them."""

    services: Services
    looks: DueLooks
    factory: ProvisionerFactory = make_provisioner
    _calls: set[asyncio.Task[None]] = field(default_factory=set)
    _asking: set[str] = field(default_factory=set)  # launches that a provider is being asked for: what was started is known in a moment
    _kept: dict[str, KeptResource] = field(default_factory=dict)
    _last_step: datetime | None = None

    async def step_once(self, now: datetime) -> None:
        """Look at the launches that are due, and wait a moment for their providers."""
        is_first = self._last_step is None
        was_set_back = self._last_step is not None and now < self._last_step
        if was_set_back or (is_first and self.services.control.is_sqlite):  # claims of a process that was killed, and was the only one
            async with self.services.write() as session:
                await rows.look_at_all(session, now)
        self._last_step = now
        groups: dict[str, list[ClaimedLaunch]] = {}
        for each in await self._claimed(now):
            groups.setdefault(json.dumps(each.row.settings, sort_keys=True), []).append(each)
        for members in groups.values():
            call = asyncio.create_task(self._serve(members, now))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        if self._calls:
            await asyncio.wait(self._calls, timeout=STEP_SECONDS)

    async def close(self) -> None:
        """End what providers keep open."""
        for each in self._kept.values():
            await each.close()

    async def _claimed(self, now: datetime) -> list[ClaimedLaunch]:
        if not (await self.looks.look(now)).launches:
            return []
        async with self.services.write() as session:
            return await self._claim(session, now)

    async def _claim(self, session: AsyncSession, now: datetime) -> list[ClaimedLaunch]:
        due = await rows.due(session, now, LAUNCHES_A_STEP)
        states = await rows.node_states(session, [row.node_id for row in due if row.node_id is not None])
        claimed = []
        for row in due:
            if row.id in self._asking:
                await launch_lifecycle.note(session, row, now, progress.LOOK_SECONDS)
                continue
            view = _view(row, states, self.services.uptime.since)
            move = progress.before_call(view, now)
            if move is not None:
                await _carry_out(session, row, move, now)
                continue
            call = progress.next_call(view)
            asked = row.asked or call is ProviderCall.LAUNCH
            await launch_lifecycle.note(session, row, now, CLAIM_SECONDS if call is not ProviderCall.NONE else 15.0, asked=asked)
            if call is not ProviderCall.NONE:
                claimed.append(ClaimedLaunch(row, view, call))
        return claimed

    async def _serve(self, members: Sequence[ClaimedLaunch], now: datetime) -> None:
        """Ask one provider for all that is due there."""
        try:
            provisioner = self.factory(members[0].row.settings, self._context())
        except ProvisionerError as error:
            for each in members:
                await self._refused(each, error)
            return
        asking = {each.row.id for each in members if each.call is ProviderCall.LAUNCH}
        self._asking |= asking
        try:
            turns = asyncio.Semaphore(CALLS_AT_ONCE)
            single = [each for each in members if each.call is not ProviderCall.POLL]
            await asyncio.gather(self._poll(provisioner, members), *(self._ask(provisioner, each, turns) for each in single))
        finally:
            self._asking -= asking
            close: Callable[[], Awaitable[None]] | None = getattr(provisioner, "close", None)
            if close is not None:
                await close()

    def _context(self) -> ProvisionerContext:
        return ProvisionerContext(self.services.settings.data, provider_secret, self._kept)

    async def _poll(self, provisioner: Provisioner, members: Sequence[ClaimedLaunch]) -> None:
        polled = {str(each.row.handle): each for each in members if each.call is ProviderCall.POLL}
        if not polled:
            return
        try:
            seen = await _called(provisioner.poll(list(polled)))
        except ProvisionerError as error:
            for each in polled.values():
                await self._refused(each, error)
            return
        for handle, each in polled.items():
            await self._change(each, partial(_note_seen, seen=seen.get(handle)))

    async def _ask(self, provisioner: Provisioner, each: ClaimedLaunch, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                if each.call is ProviderCall.LAUNCH:
                    handle = await _called(provisioner.launch(await self._request(each.row)))
                    await self._change(each, partial(_note_launched, handle=handle))
                else:
                    await _called(provisioner.terminate(str(each.row.handle)))
                    await self._change(each, _note_terminated)
            except ProvisionerError as error:
                await self._refused(each, error)

    async def _request(self, row: LaunchRow) -> WantedNode:
        """What the provider is asked for, with a new token; the one of an earlier try may have been lost with it."""
        async with self.services.write() as session:
            token, _ = await joining.create_join_token(
                session, created_by=row.requested_by, now=self.services.now(), lifetime=launches.TOKEN_LIFETIME, launch_id=row.id
            )
        shown = joining.pinned(token, row.server, joining.own_authority(self.services.settings))
        return WantedNode(row.name, row.pool or "", row.server, shown, row.labels, row.slots, row.id)

    async def _refused(self, each: ClaimedLaunch, error: ProvisionerError) -> None:
        await self._change(each, partial(_note_refused, error=error, asked=each.view.asked))

    async def _change(self, each: ClaimedLaunch, change: Change) -> None:
        """Apply what a provider has answered to a launch as it is by now, and drain its node if that follows."""
        now = self.services.now()
        async with self.services.write() as session:
            row = await rows.launch(session, each.row.id, lock=True)
            if row is None or row.state in OVER_LAUNCH_STATES:
                return
            states = await rows.node_states(session, [row.node_id] if row.node_id is not None else [])
            drain = await change(session, row, _view(row, states, self.services.uptime.since), now)
            node_id = row.node_id
        if drain and node_id is not None:
            await self._drain(node_id, drain, now)

    async def _drain(self, node_id: str, why: str, now: datetime) -> None:
        """Drain a node, in a transaction of its own: a node's row is locked before that of its launch."""
        async with self.services.write() as session:
            node = await node_rows.get_locked(session, node_id)
            if node is not None and node.state not in (NodeState.DRAINING, NodeState.GONE):
                await nodes.remove(session, node, SYSTEM, now, force=False, why=why)


async def _called(call: Awaitable[T]) -> T:
    """The answer of a provider. Raises ProvisionerError, whatever goes wrong."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await call
    except ProvisionerError:
        raise
    except TimeoutError as error:
        raise ProvisionerError(f"no answer within {CALL_SECONDS:.0f} s") from error
    except Exception as error:
        logger.exception("a provider failed in a way that it should have explained")
        raise ProvisionerError(f"{type(error).__name__}: {error}"[:MOST_CHARACTERS], "see the coordinator's log") from error


def _view(row: LaunchRow, states: Mapping[str, NodeState], up_since: datetime | None) -> LaunchView:
    node = states.get(row.node_id) if row.node_id is not None else None
    return LaunchView(row.state, row.state_since, row.wanted, row.asked, row.handle is not None, row.failures, node, up_since)


async def _carry_out(session: AsyncSession, row: LaunchRow, move: LaunchMove, now: datetime, **values: Any) -> None:
    """Carry out a move: to another state, or with another reason in the same one."""
    if move.failure:
        values["failure"] = move.failure
    if move.to is not row.state:
        await launch_lifecycle.move(session, row, move.to, move.failure or move.reason, now, remedy=move.remedy, **values)
        return
    failures: int = values.pop("failures", 0)
    seconds = progress.seconds_to_next_look(row.state, failures)
    await launch_lifecycle.note(session, row, now, seconds, reason=move.reason, remedy=move.remedy, failures=failures, **values)


async def _note_launched(session: AsyncSession, row: LaunchRow, view: LaunchView, now: datetime, handle: str) -> str:
    if row.state is LaunchState.REQUESTED:
        await _carry_out(session, row, LaunchMove(LaunchState.PENDING, "its provider has taken it"), now, handle=handle[:MOST_HANDLE])
    else:
        await launch_lifecycle.note(session, row, now, 0.0, handle=handle[:MOST_HANDLE])
        await rows.set_handle(session, row.node_id, handle[:MOST_HANDLE])
    return ""


async def _note_terminated(session: AsyncSession, row: LaunchRow, view: LaunchView, now: datetime) -> str:
    to = LaunchState.FAILED if row.failure else LaunchState.ENDED
    await launch_lifecycle.move(session, row, to, row.failure or "its provider has ended it", now, remedy=row.remedy)
    return ""


async def _note_seen(session: AsyncSession, row: LaunchRow, view: LaunchView, now: datetime, seen: SeenLaunch | None) -> str:
    if row.state not in (LaunchState.PENDING, LaunchState.RUNNING, LaunchState.JOINED):
        return ""
    if seen is None:
        await launch_lifecycle.note(session, row, now, progress.LONGEST_WAIT_SECONDS)
        return ""
    move = progress.after_poll(view, seen)
    await _carry_out(session, row, move, now)
    return move.drain


async def _note_refused(
    session: AsyncSession, row: LaunchRow, view: LaunchView, now: datetime, error: ProvisionerError, asked: bool
) -> str:
    """Note a refusal. `asked`: whether the provider had been called before the call that it refused."""
    logger.info("the provider %s refused %s: %s", row.provider, row.name, error)
    over = progress.after_empty_refusal(view, asked) if error.nothing_began else None
    move = over or replace(progress.after_failure(view, str(error)[:MOST_CHARACTERS]), remedy=error.remedy[:MOST_CHARACTERS])
    known: dict[str, Any] = {"asked": asked} if error.nothing_began and row.state is LaunchState.REQUESTED else {}
    await _carry_out(session, row, move, now, **known, **({} if move.to is not row.state else {"failures": row.failures + 1}))
    return ""
