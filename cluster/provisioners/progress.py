"""Decides what happens next to a node that a provider is to start, and why. Pure.

Deadlines of the states: REQUESTED ends after `MOST_TRIES` refusals; PENDING after `PENDING_SECONDS`; RUNNING after `JOIN_SECONDS`; JOINED has
none, its node has those of `api/loops/nodes.py`; TERMINATING ends after `MOST_ENDINGS` refusals.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from paceline.cluster.provisioners.provisioner import LaunchPhase, SeenLaunch
from paceline.cluster.states import LaunchState, NodeState
from paceline.cluster.waiting import waited

CANCELLED_EARLY = "it was cancelled before anything of it was started"
MOST_TRIES = 5
MOST_ENDINGS = 12
#: A queue may be long; an agent that was started joins within seconds.
PENDING_SECONDS = 7 * 24 * 3600.0
JOIN_SECONDS = 300.0
#: How often a provider is asked, by state; each failure doubles it.
_LOOK_SECONDS = {LaunchState.JOINED: 15.0, LaunchState.PENDING: 2.0}
LOOK_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0


class ProviderCall(StrEnum):
    """The next call of a provider for a launch."""

    NONE = "none"
    LAUNCH = "launch"
    POLL = "poll"
    TERMINATE = "terminate"


@dataclass(frozen=True)
class LaunchView:
    """One launch, as far as decisions about it need it."""

    state: LaunchState
    since: datetime
    wanted: bool
    asked: bool  # whether the provider was ever called for it, in a way that may have started something
    has_handle: bool
    failures: int = 0  # calls that failed in a row
    node: NodeState | None = None  # of the node that has joined as it, though it may have left again
    up_since: datetime | None = None  # the coordinator has been up without a break since then: no node could join before


@dataclass(frozen=True)
class LaunchMove:
    """Where a launch goes, and why. `failure`: it is given up, for this reason. `drain`: its node is to be drained, for this reason."""

    to: LaunchState
    reason: str = ""
    failure: str = ""
    remedy: str = ""
    drain: str = ""


def next_call(view: LaunchView) -> ProviderCall:
    """The call that the provider is to get next.

    A launch that is wanted no more, and whose handle was lost with the coordinator that asked for it, is launched once more: under the same name
    that is the same node, so its handle is learned, and it can be ended.
    """
    if view.state is LaunchState.REQUESTED:
        return ProviderCall.LAUNCH if view.wanted or view.asked else ProviderCall.NONE
    if view.state is LaunchState.TERMINATING:
        return ProviderCall.TERMINATE if view.has_handle else ProviderCall.NONE
    if not view.has_handle:
        return ProviderCall.LAUNCH  # it has joined before the answer came
    return ProviderCall.POLL if view.wanted else ProviderCall.NONE


def before_call(view: LaunchView, now: datetime) -> LaunchMove | None:
    """A move that needs no answer of the provider; None: ask it first."""
    if not view.wanted and view.state is not LaunchState.TERMINATING:
        if view.state is LaunchState.REQUESTED:
            return None if view.asked else LaunchMove(LaunchState.ENDED, CANCELLED_EARLY)
        if view.state is LaunchState.JOINED and view.node not in (NodeState.GONE, None):
            return LaunchMove(LaunchState.JOINED, "its node is being drained")
        return LaunchMove(LaunchState.TERMINATING, "it is wanted no more") if view.has_handle else None
    if view.state is LaunchState.RUNNING and waited(view.since, view.up_since, now) >= timedelta(seconds=JOIN_SECONDS):
        ago = max((now - view.since).total_seconds(), JOIN_SECONDS)
        return LaunchMove(
            LaunchState.TERMINATING,
            failure=f"its agent was started {ago:.0f} s ago and has not joined",
            remedy="look at the agent's log there, and whether that machine reaches the coordinator's URL",
        )
    if view.state is LaunchState.PENDING and now - view.since >= timedelta(seconds=PENDING_SECONDS):
        return LaunchMove(
            LaunchState.TERMINATING, failure=f"it has waited for {timedelta(seconds=PENDING_SECONDS).days} days", remedy="ask for it again"
        )
    return None


def after_poll(view: LaunchView, seen: SeenLaunch) -> LaunchMove:
    """Where the provider's view of a launch leads. A node that will be taken away is not drained for that: its agent knows when
    (`cluster.agent.notices`), and whether it comes back."""
    if view.state is LaunchState.JOINED:
        return _after_joining(view, seen)
    if seen.phase is LaunchPhase.ENDED and view.node is not None:
        return LaunchMove(LaunchState.TERMINATING, seen.reason or "its provider has ended it")
    if seen.phase is LaunchPhase.ENDED:
        return LaunchMove(LaunchState.TERMINATING, failure=seen.reason or "its provider has ended it before it joined")
    return LaunchMove(LaunchState.RUNNING if seen.phase is LaunchPhase.RUNNING else LaunchState.PENDING, seen.reason)


def _after_joining(view: LaunchView, seen: SeenLaunch) -> LaunchMove:
    if view.node in (NodeState.GONE, None):
        if seen.phase is LaunchPhase.ENDED:
            return LaunchMove(LaunchState.ENDED, seen.reason or "its provider has ended it")
        return LaunchMove(LaunchState.RUNNING if seen.phase is LaunchPhase.RUNNING else LaunchState.PENDING, "its provider starts it again")
    if seen.phase is LaunchPhase.ENDED:
        lost = view.node in (NodeState.JOINING, NodeState.LOST, NodeState.UNREACHABLE)  # joining: its agent ended before its first hello
        why = f"its provider has ended it{f': {seen.reason}' if seen.reason else ''}"
        return LaunchMove(LaunchState.JOINED, why, drain=why if lost else "")
    return LaunchMove(LaunchState.JOINED, seen.reason)


def after_failure(view: LaunchView, message: str) -> LaunchMove:
    """Where a call that the provider refused leads; the last refusal that is tolerated gives the launch up."""
    tries = view.failures + 1
    if view.state is LaunchState.REQUESTED and tries >= MOST_TRIES:
        return LaunchMove(LaunchState.FAILED, failure=f"{message} ({tries} tries)")
    if view.state is LaunchState.TERMINATING and tries >= MOST_ENDINGS:
        return LaunchMove(LaunchState.FAILED, failure=f"it may still run there, since it could not be ended: {message}")
    return LaunchMove(view.state, message)


def after_empty_refusal(view: LaunchView, asked: bool) -> LaunchMove | None:
    """Where a refusal leads by which nothing was started, of a launch that is wanted no more. `asked`: an earlier call may have started something, and
    the launch is asked for until that is known. None: as after any other refusal."""
    over = view.state is LaunchState.REQUESTED and not view.wanted and not asked
    return LaunchMove(LaunchState.ENDED, CANCELLED_EARLY) if over else None


def seconds_to_next_look(state: LaunchState, failures: int) -> float:
    """How long to wait before the provider is asked again."""
    return min(_LOOK_SECONDS.get(state, LOOK_SECONDS) * 2.0 ** min(failures, 10), LONGEST_WAIT_SECONDS)
