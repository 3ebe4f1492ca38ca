"""A rank as its spawner knows it: the process, its deadline, and its exit status."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.agent.processes import in_session, members, programs_of, send_signal
from paceline.training.link import RankOrder
from paceline.training.schema.script import grace_of

#: A process that ends by one of these has broken by itself, whatever else it was told: it may take long to dump its core.
CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS})
#: So long after the first process of a node the last one may get a SIGTERM that is meant for all.
SAME_SIGTERM_SECONDS = 1.0


@dataclass
class LiveRank:
    """A rank between fork and waitpid."""

    pid: int
    order: RankOrder
    mark: str  # the folder in its environment, and so in that of whatever it starts
    tag: int  # its own number, which whatever it starts inherits
    group: Path | None = None  # its control group, if there is one
    shim_pid: int | None = None  # its parent; None: that has ended
    kill_at: float | None = None  # monotonic: SIGTERM was sent, SIGKILL follows
    told: tuple[int, ...] = ()  # the processes that SIGTERM was sent to
    grace: float = 0.0  # seconds that it had between the two
    signalled: bool = False  # SIGTERM came to every process of the node, from its batch system: it has been told to end
    sigterm_at: float | None = None  # monotonic: SIGTERM ended it, which may have been that one
    killed: bool = False  # by us
    suspended: bool = False  # stopped by a signal, and not yet continued
    status: int | None = None  # what waitpid said of it; what it has started may still save, until `kill_at`

    @property
    def is_script(self) -> bool:
        return self.order.spec.is_script

    @property
    def was_told(self) -> bool:
        """Whether it has been told to end."""
        return self.signalled or self.kill_at is not None

    def mark_signalled(self) -> None:
        """Note that SIGTERM came to every process of the node. The trainer's ranks ignore it; a script's rank has been told to end."""
        if self.is_script and not self.was_told:
            self.signalled, self.told = True, tuple(self.programs())

    def may_be_signalled(self, now: float) -> bool:
        """Whether SIGTERM has just ended it, and may be on its way to the spawner as well: a batch system signals one process after another."""
        return self.is_script and self.sigterm_at is not None and not self.was_told and now - self.sigterm_at < SAME_SIGTERM_SECONDS

    def terminate(self, grace_seconds: float) -> None:
        """Send SIGTERM, once, and let `kill_at` be no later than so many seconds from now."""
        deadline = time.monotonic() + grace_seconds
        if self.kill_at is None:
            self.grace = grace_seconds
            if not self.signalled:  # or it would be told a second time, while it saves
                self.told = tuple(self.programs())
                send_signal(self.told, signal.SIGTERM)
            if self.suspended and self.is_script:
                send_signal(self.processes(), signal.SIGCONT)  # or it could not save
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)

    def kill(self) -> None:
        """Send SIGKILL to all of its processes."""
        self.killed = True
        send_signal(self.processes(), signal.SIGKILL)
        self.end_shim()

    @property
    def own_grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL, unless a request sets fewer."""
        return grace_of(self.order.spec.document)

    def processes(self) -> list[int]:
        """The living processes of the rank, its own first. A process that is stopped right after the fork leads no session and carries
        no mark yet, but until it is reaped no other process has its pid."""
        own = [self.pid] if self.status is None else []
        return [*own, *(pid for pid in members(self.pid, self.mark, self.tag) if pid != self.pid)]

    def programs(self) -> list[int]:
        """The processes that SIGTERM is for. The rank is alive; as in `processes`, it is among them in any case."""
        return [self.pid, *(pid for pid in programs_of(self.pid) if pid != self.pid)]

    def end_shim(self) -> None:
        """Kill the rank's parent, which a rank may have stopped: the rank's exit status comes to the spawner only past it."""
        if self.shim_pid is not None:
            send_signal([self.shim_pid], signal.SIGKILL)

    def has_programs_left(self) -> bool:
        """Whether the rank has ended, and another program that was told to end has not. Helpers of Python programs do not count: they
        end with them."""
        return not set(self.told).isdisjoint(in_session(self.pid))
