"""A trainer without torch: speaks the rank link and writes the rank folder as the real one does. Its behaviour comes from
the job's environment: FAKE_STEPS (0: for ever), FAKE_STEP_SECONDS, FAKE_IGNORE_SIGTERM, FAKE_CRASH_AT, FAKE_CHILDREN,
FAKE_FORK (a child of the same program, as the workers of a DataLoader are), FAKE_STALL (says once that it waits), FAKE_EXIT (a code, or a message), FAKE_BOUNDARY (what it is asked to do at a boundary it does
after a multiple of so many steps), FAKE_WAIT_FOR (a file without which it does not take the last step, or the one of FAKE_WAIT_AT),
FAKE_TELL (a variable that it prints)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline.monitoring.files import write_durably
from paceline.monitoring.points import MetricRecord
from paceline.monitoring.spool import SpoolWriter
from paceline.training.link import (
    FailureReport,
    FromRank,
    Joined,
    Parked,
    Progress,
    RankHello,
    RankOrder,
    Reform,
    Result,
    Stalled,
    decode_order,
    decode_to_rank,
)
from paceline.training.rank_folder import RankFolder


def preload() -> None:
    pass


def serve_store(host: str, listener: socket.socket) -> socket.socket:
    """Nobody answers at that port, but it is taken."""
    return listener


@dataclass
class Link:
    """Connects again whenever the agent is back; never blocks the rank."""

    order: RankOrder
    socket: socket.socket | None = None
    unread: bytes = b""
    paused: bool = False
    released: bool = False
    moved: bool = False  # to another folder, since that was last looked at
    later: RankOrder | None = None  # to be obeyed at a boundary
    started: list[FromRank] = field(default_factory=list)  # what is said again on each connection

    def say(self, message: FromRank) -> None:
        if self.socket is None and not self._connect():
            return
        self._send(message)
        self._listen()

    def _connect(self) -> bool:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self.order.agent_socket)
        except OSError:
            connection.close()
            return False
        connection.setblocking(False)
        self.socket = connection
        world = self.order.world
        self._send(RankHello(job_id=world.job_id, generation=world.generation, rank=world.rank, pid=os.getpid(), birth=world.process))
        for joined in self.started:
            self._send(joined)
        return True

    def _send(self, message: FromRank) -> None:
        if self.socket is None:
            return
        try:
            self.socket.sendall(msgspec.json.encode(message) + b"\n")
        except OSError:
            self._drop()

    def _listen(self) -> None:
        if self.socket is None:
            return
        try:
            received = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._drop()
        self.paused |= b'"pause"' in received
        self.released |= b'"release"' in received
        for line in received.splitlines():
            if isinstance(message := decode_to_rank(line), Reform):
                self._obey(message.order)

    def _obey(self, order: RankOrder) -> None:
        if order.world.at_boundary and not self.order.world.parked:
            self.later = order
        else:
            self.move(order)

    def move(self, order: RankOrder) -> None:
        if order.world.generation > self.order.world.generation:
            self.order, self.started = order, []
            self._drop()
            self.moved = True

    def _drop(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None


def start_children() -> None:
    """Start the processes that a rank is asked to leave behind, and print their pids."""
    for _ in range(int(os.environ.get("FAKE_CHILDREN", "0"))):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print(f"child {child.pid}")
    if os.environ.get("FAKE_FORK"):
        fork = os.fork()
        if not fork:
            signal.pause()
        print(f"child {fork}")


def run_rank(order: RankOrder) -> int:
    folder, link = RankFolder.at(Path(order.folder)), Link(order)
    steps, pause = int(os.environ.get("FAKE_STEPS", "0")), float(os.environ.get("FAKE_STEP_SECONDS", "0.02"))
    crash_at, boundary = int(os.environ.get("FAKE_CRASH_AT", "0")), int(os.environ.get("FAKE_BOUNDARY", "1"))
    if told := os.environ.get("FAKE_TELL"):
        print(f"{told}={os.environ.get(told)}")
    if end := os.environ.get("FAKE_EXIT"):
        sys.exit(int(end) if end.isdigit() else end)
    if os.environ.get("FAKE_IGNORE_SIGTERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start_children()
    awaited, wait_at = os.environ.get("FAKE_WAIT_FOR"), int(os.environ.get("FAKE_WAIT_AT", steps))
    if order.world.parked:
        if not park(link, pause):
            return _end(RankFolder.at(Path(link.order.folder)), Result(outcome="released", step=0), 0)
        folder, _ = _enter(link)
    spool = SpoolWriter(folder.metrics)
    link.started.append(Joined(step=0, total_steps=steps))
    if os.environ.get("FAKE_STALL"):
        link.started.append(Stalled(step=1, phase="exchange", seconds=2.0, limit=1.0, patience=30.0, since=time.time()))
    step = number = 0
    while not steps or step < steps:
        step += 1
        time.sleep(pause)
        while step == wait_at and awaited and not os.path.exists(awaited):
            time.sleep(pause)
            link.say(Progress(step=step - 1))
        number += 1
        record = MetricRecord(seq=number, step=step, time=time.time(), values={"loss": 1 / step})
        spool.append(msgspec.json.encode(record))
        spool.flush(durable=False)
        print(f"step {step}")
        link.say(Progress(step=step))
        if link.later is not None and step % boundary == 0:
            link.move(link.later)
            link.later = None
        if link.moved:
            spool.close()
            folder, spool, number = *_enter(link), 0
            link.started.append(Joined(step=step, total_steps=steps))
        if step == crash_at:
            failure = FailureReport(kind="exception", rank=order.world.rank, message="planned", exception="RuntimeError", step=step)
            return _end(folder, Result(outcome="failed", step=step, failure=failure), 1)
        if link.released and step % boundary == 0:
            return _end(folder, Result(outcome="released", step=step), 0)
        if link.paused:
            return _end(folder, Result(outcome="paused", step=step), 0)
    return _end(folder, Result(outcome="completed", step=step), 0)


def main() -> int:
    return run_rank(decode_order(sys.stdin.buffer.read()))


def run_script(order: RankOrder, command: Sequence[str]) -> None:
    """It has nothing warm to offer."""


def park(link: Link, pause: float) -> bool:
    """Whether there is a place in the end."""
    parked = Parked()
    while link.order.world.parked:
        link.started = [parked]
        link.say(parked)
        if link.paused or link.released:
            return False
        if link.moved:
            _enter(link)
        time.sleep(pause)
    link.started = []
    return True


def _enter(link: Link) -> tuple[RankFolder, SpoolWriter]:
    """Metrics and output go to the new folder, before the agent hears of the move."""
    link.moved = False
    folder = RankFolder.at(Path(link.order.folder))
    output = os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    return folder, SpoolWriter(folder.metrics)


def _end(folder: RankFolder, result: Result, code: int) -> int:
    write_durably(folder.result, msgspec.json.encode(result))
    return code
