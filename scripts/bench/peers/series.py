"""The faults that ours get, dealt to a peer: a worker killed, a machine killed, a machine added. One that hangs is started anew."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.bench.peers.rig import Peer, Rig, diaries
from scripts.faults import history
from scripts.faults.history import Commit
from scripts.faults.observer import HangError, Observer
from scripts.faults.series import WARM_STEPS, Findings
from scripts.steps import say

MEMBERS = ("peer-0", "peer-1", "peer-2")
START_TIMEOUT_S = 90.0
#: Longer than anything that a peer recovers from by itself: torchrun notices a lost machine after 45 s.
HANG_S = 75.0

#: Strikes one member of a running gang and waits until all is as before: the outage, and the outages of the members that came back.
Blow = Callable[[Rig, Observer, Findings], None]


def workers_killed(peer: Peer, count: int) -> Findings:
    return _strike_repeatedly(peer, count, _kill_worker)


def members_killed(peer: Peer, count: int) -> Findings:
    return _strike_repeatedly(peer, count, _kill_member)


def _strike_repeatedly(peer: Peer, count: int, blow: Blow) -> Findings:
    findings = Findings()
    while findings.faults < count:
        with _running(peer) as (rig, observer):
            try:
                while findings.faults < count:
                    blow(rig, observer, findings)
            except HangError as hang:
                findings.hangs += 1
                say(f"  {peer.name} HANGS: {hang}")
            findings.conclude(observer.commits)
    return findings


@contextmanager
def _running(peer: Peer) -> Iterator[tuple[Rig, Observer]]:
    with tempfile.TemporaryDirectory(prefix="paceline-peer-") as folder:
        rig = Rig(peer, Path(folder), MEMBERS)
        try:
            rig.start()
            with Observer(diaries(Path(folder))) as observer:
                _ready(rig, observer)
                yield rig, observer
        finally:
            rig.stop()


def _ready(rig: Rig, observer: Observer) -> None:
    """A peer that does not even start has been set up wrongly: that is no figure."""
    try:
        observer.whole(len(MEMBERS), START_TIMEOUT_S)
    except HangError as error:
        raise RuntimeError(f"{rig.peer.name} has not started: {error}\n{rig.said()}") from error


def _kill_worker(rig: Rig, observer: Observer, findings: Findings) -> None:
    victim = _next_victim(observer, findings)
    findings.faults += 1
    _await_recovery(observer, findings, victim.generation, rig.kill_worker(victim.member), "worker killed")


def _kill_member(rig: Rig, observer: Observer, findings: Findings) -> None:
    """And adds it again. The first member is spared: with torchrun it holds the store, and the job would be over."""
    victim = _next_victim(observer, findings)
    member = victim.member if victim.member != MEMBERS[0] else MEMBERS[-1]
    findings.faults += 1
    alone = _await_survivors(observer, findings, victim.generation, rig.kill_member(member))
    rig.start_member(member)
    whole = observer.whole(len(MEMBERS), HANG_S)
    observer.reach(0, observer.newest_step + WARM_STEPS, HANG_S)
    findings.joins.append(history.join_outage(observer.commits, alone, whole))
    say(f"  {rig.peer.name}, machine killed: {findings.outages[-1]:.3f} s; its return: {findings.joins[-1]:.3f} s")


def _next_victim(observer: Observer, findings: Findings) -> Commit:
    return observer.reach(findings.faults % len(MEMBERS), observer.newest_step + WARM_STEPS, HANG_S)


def _await_recovery(observer: Observer, findings: Findings, before: int, at: float, what: str) -> None:
    """The peer's own agents start what was killed again."""
    _await_survivors(observer, findings, before, at)
    observer.whole(len(MEMBERS), HANG_S)
    say(f"  {what}: {findings.outages[-1]:.3f} s")


def _await_survivors(observer: Observer, findings: Findings, before: int, at: float) -> int:
    """The membership in which they go on."""
    if not observer.resumed(before, HANG_S):
        raise HangError(f"no step within {HANG_S:g} s")
    resumed_at = history.resumed_at(observer.commits, before)
    assert resumed_at is not None
    findings.outages.append(resumed_at - at)
    return history.newest_generation(observer.commits)
