"""Notices that this rank makes no progress, and reports it to its agent. It ends nothing: the culprit shows only beside the other ranks' reports.

The training thread notes what it begins with (`Activity`), a thread of its own wakes to look at that when it would be too
late. What the rank waits for is in its aborter's `calls`; where else it may be, its stack tells.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from paceline.distributed.abort import GroupAborter
from paceline.distributed.probes import Endpoint, unanswered
from paceline.training.link import GroupCall, Moving, Stalled
from paceline.training.timing.activity import Activity, CurrentPhase
from paceline.training.timing.phase_times import PhaseLimits, PhaseTimes
from paceline.training.watchdog.stack_location import StackLocation, locate_stack

#: Other machines are asked a little ahead, so that the answer, or its absence, is there when the limit is reached; and again
#: a little later, for a rank that has no other rank's report.
ASK_AHEAD_SECONDS = 0.25
CONFIRM_SECONDS = 0.3
#: While something is stalled: how soon it shows that it goes on, and how often it is looked at anew.
POLL_SECONDS = 0.05
LOOK_AGAIN_SECONDS = 5.0
#: The longest sleep: the next step may have a shorter limit.
IDLE_SECONDS = 0.25
SHORTEST_SECONDS = 0.01
#: A thread that wakes later than this was stopped, or starved, with all of its process: that time is no rank's fault.
OVERSLEPT_SECONDS = 0.2
CLOSE_TIMEOUT_SECONDS = 1.0


@dataclass(frozen=True)
class ActivityRecord:
    """The watchdog's knowledge of one activity of the training thread."""

    doing: CurrentPhase
    excused: float = 0.0  # seconds in which the whole process did not run
    stage: int = 0  # how many of the moments below have passed
    looked_at: float = 0.0
    unanswered: tuple[int, ...] = ()
    said: Stalled | None = None


class Watchdog:
    """`say` takes word to the agent. Made by the training thread."""

    def __init__(self, say: Callable[[Stalled | Moving], None], hang_seconds: float | None = None) -> None:
        self.activity = Activity(PhaseTimes(hang_seconds))
        self._say = say
        self._watched = threading.get_ident()
        self._aborter: GroupAborter | None = None
        self._answering: dict[int, Endpoint] | None = None  # of the present generation's peers; None: not asked yet
        self._world_size = 0
        self._seen = ActivityRecord(self.activity.doing)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def guard(self, aborter: GroupAborter, world_size: int, step: int) -> None:
        """Begin to watch a new generation."""
        self._aborter, self._answering = aborter, None
        self.activity.times.enter_world(self._world_size, world_size)
        self._world_size = world_size
        self.activity.enter("rendezvous", step)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def _run(self) -> None:
        asleep = IDLE_SECONDS
        before = time.monotonic()
        while not self._stop.wait(asleep):
            now = time.monotonic()
            overslept = now - before - asleep
            if overslept > OVERSLEPT_SECONDS:
                self.excuse(overslept)
            due = now + self.look(now)
            before = time.monotonic()  # machines that do not answer have been waited for
            asleep = max(SHORTEST_SECONDS, due - before)

    def excuse(self, seconds: float) -> None:
        self._seen = replace(self._seen, excused=self._seen.excused + seconds)

    def look(self, now: float) -> float:
        """Say what there is to say; how many seconds later to look again."""
        doing = self.activity.doing
        if doing is not self._seen.doing:
            self._turn_to(doing)
        limits = self.activity.times.limits(doing.phase)
        if limits is None:
            return IDLE_SECONDS
        if doing.phase == "step" and self._answering is None:
            self._answering = self._greet()
        seconds = now - doing.since - self._seen.excused
        moments = moments_of(limits)
        stage = sum(seconds >= moment for moment in moments)
        due = self._seen.said is not None and now - self._seen.looked_at >= LOOK_AGAIN_SECONDS
        if stage > self._seen.stage or due:
            self._seen = replace(self._seen, stage=stage, looked_at=now, unanswered=self._ask(stage))
            if stage > 1:
                self._report(doing, seconds, limits)
        if self._seen.said is not None:
            return POLL_SECONDS
        return min(max(SHORTEST_SECONDS, moments[stage] - seconds), IDLE_SECONDS) if stage < len(moments) else POLL_SECONDS

    def _turn_to(self, doing: CurrentPhase) -> None:
        before, self._seen = self._seen, ActivityRecord(doing)
        if before.said is not None:
            self._say(Moving())

    def _greet(self) -> dict[int, Endpoint]:
        """The peers whose silence would mean something: a firewall may swallow our calls, and answers to none of them."""
        peers = self._aborter.host_probes if self._aborter is not None else {}
        mute = unanswered(peers)
        return {rank: place for rank, place in peers.items() if rank not in mute}

    def _ask(self, stage: int) -> tuple[int, ...]:
        """Ask, while this rank waits for others, whether their machines answer. A machine that did not answer before is reported without delay."""
        if stage == 2 and self._seen.unanswered:
            return self._seen.unanswered
        waits = self._aborter is not None and self._aborter.calls.awaited is not None
        return unanswered(self._answering) if waits and self._answering else ()

    def _report(self, doing: CurrentPhase, seconds: float, limits: PhaseLimits) -> None:
        waits, recent = self._calls()
        found = locate_stack(self._watched, doing.phase)
        if self.activity.doing is not doing:
            return  # it moved on while it was looked at
        stalled = Stalled(
            step=doing.step,
            phase="exchange" if waits and doing.phase == "step" else found.phase,
            seconds=round(seconds, 3),
            limit=round(limits.stall, 3),
            patience=round(limits.patience, 3),
            since=time.time() - seconds,
            waits=waits or own_call(found),
            recent=recent,
            where=found.line,
            unanswered=self._seen.unanswered,
        )
        if is_news(stalled, self._seen.said):
            self._seen = replace(self._seen, said=stalled)
            self._say(stalled)

    def _calls(self) -> tuple[GroupCall | None, tuple[GroupCall, ...]]:
        if self._aborter is None:
            return None, ()
        calls = self._aborter.calls
        awaited = calls.awaited
        return (
            None if awaited is None else GroupCall(awaited.number, str(awaited)),
            tuple(GroupCall(call.number, str(call)) for call in tuple(calls.recent)),
        )


def moments_of(limits: PhaseLimits) -> tuple[float, ...]:
    """Ask the others, say that it takes long, say so with more certainty, say that it is hung."""
    return (
        limits.stall - min(ASK_AHEAD_SECONDS, limits.stall / 2),
        limits.stall,
        limits.stall + CONFIRM_SECONDS,
        max(limits.patience, limits.stall + CONFIRM_SECONDS),
    )


def own_call(found: StackLocation) -> GroupCall | None:
    """User code may use torch.distributed by itself: then it waits, too."""
    return GroupCall(0, f"{found.own_call} of its own at {found.line}") if found.own_call else None


def is_news(stalled: Stalled, said: Stalled | None) -> bool:
    """Return whether a stall differs from the last one sent in more than its duration, or its duration has crossed a reporting
    threshold."""
    if said is None or (said.overdue, confirmed(said)) != (stalled.overdue, confirmed(stalled)):
        return True
    times = {"seconds": said.seconds, "since": said.since, "limit": said.limit, "patience": said.patience}
    return msgspec.structs.replace(stalled, **times) != said


def confirmed(stalled: Stalled) -> bool:
    return stalled.seconds >= stalled.limit + CONFIRM_SECONDS
