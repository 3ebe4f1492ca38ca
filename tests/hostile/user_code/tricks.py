"""What a user's script may do to the machine it runs on, by mistake or on purpose: `tricks.py NAME` does one of it.

A trick that is refused in its own line (an exception) ends this script with code 1; what else happens is the test's to tell.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import paceline
from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.spool import SpoolWriter

FOLDER = Path(os.environ["PACELINE_RANK_FOLDER"])
TRICKS: dict[str, Callable[[], None]] = {}


def trick(work: Callable[[], None]) -> Callable[[], None]:
    TRICKS[work.__name__] = work
    return work


def logged(name: str, step: Any, **values: Any) -> None:
    """A trick that is one call of `paceline.log`."""
    TRICKS[name] = lambda: paceline.log(step, **({"loss": 1.0} | values))


# --- Steps that are no plain integers
logged("step_fraction", 0.5)
logged("step_negative", -1)
logged("step_2_to_the_53", 2**53)
logged("step_2_to_the_64", 2**64)
logged("step_text", "7")
logged("step_true", True)
logged("step_none", None)
logged("step_nan", float("nan"))


# --- Values and names
logged("value_text", 1, loss="low")
logged("value_list", 1, loss=[1.0, 2.0])
logged("value_complex", 1, loss=1j)
logged("value_none", 1, loss=None)
logged("name_reserved", 1, step_seconds=-1.0, first_sample=0, samples=1e15, epoch_samples=1)
logged("name_long", 1, **{"x" * 5000: 1.0})
logged("name_surrogate", 1, **{"\ud800": 1.0})
logged("name_nul", 1, **{"a\0b": 1.0, "": 2.0, "a\nb": 3.0})


@trick
def step_numpy() -> None:
    import numpy

    paceline.log(numpy.int64(3), loss=numpy.float32(0.5))
    paceline.log(4, loss=numpy.array(0.25))


@trick
def infinities() -> None:
    """Of one metric in one bucket; sums that overflow."""
    paceline.log(1, loss=float("inf"), big=1e308)
    paceline.log(2, loss=float("-inf"), big=1e308)
    paceline.log(3, loss=float("nan"), big=-1e308)


@trick
def names_by_the_thousand() -> None:
    for step in range(50):
        paceline.log(step, **{f"weight_{step}_{number}": float(number) for number in range(100)})


@trick
def names_in_one_call() -> None:
    paceline.log(1, **{f"weight_{number}": float(number) for number in range(50_000)})


@trick
def points_flood() -> None:
    for step in range(40_000):
        paceline.log(step, a=1.0, b=2.0)


# --- What stands in its spools
@trick
def spool_of_odd_records() -> None:
    """Whole records that no version of ours writes."""
    writer = SpoolWriter(FOLDER / "metrics.spool")
    for record in (
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"seq": "x"}',
        json.dumps({"seq": 1, "step": 0.5, "time": 1, "values": {}}).encode(),
    ):
        writer.append(record)
    writer.append(msgspec.json.encode(MetricRecord(seq=7, step=-5, time=float("1e300"), values={"loss": 1.0})))
    writer.append(msgspec.json.encode(MetricRecord(seq=8, step=2**60, time=-1.0, values={"": 1.0})))
    writer.append(msgspec.json.encode(MetricRecord(seq=2**62, step=1, time=0.0, values={"loss": 1.0})))
    writer.flush(durable=True)


@trick
def events_nobody_knows() -> None:
    writer = SpoolWriter(FOLDER / "events.spool")
    writer.append(b'{"seq": 1, "time": 1.0, "kind": "no_such_kind", "data": {}}')
    writer.append(msgspec.json.encode(RankEvent(seq=2, time=1e300, kind="checkpoint_committed", data={"path": "/", "step": "x"})))
    writer.append(msgspec.json.encode(RankEvent(seq=3, time=0.0, kind="checkpoint_committed", data={"deep": [[[[[{}]]]]] * 1000})))
    writer.flush(durable=True)


@trick
def spool_of_noise() -> None:
    (FOLDER / "metrics.spool").write_bytes(os.urandom(200_000))
    (FOLDER / "events.spool").write_bytes(b"\xff" * 200_000)


@trick
def spool_is_a_folder() -> None:
    (FOLDER / "metrics.spool").mkdir()
    (FOLDER / "events.spool").mkdir()


@trick
def spool_shrinks() -> None:
    paceline.log(1, loss=1.0)
    time.sleep(0.3)
    os.truncate(FOLDER / "metrics.spool", 3)


@trick
def bookkeeping_damaged() -> None:
    for name in ("acknowledged.json", "exit.json", "result.json", "order.json"):
        (FOLDER / name).write_bytes(b'{"no": ')


@trick
def result_of_lies() -> None:
    (FOLDER / "result.json").write_text('{"outcome": "completed", "step": -7, "failure": 5}')


@trick
def result_that_no_row_holds() -> None:
    failure = {"kind": "exception", "rank": 0, "message": "a\0b", "where": "x" * 3_000_000}
    (FOLDER / "result.json").write_text(json.dumps({"outcome": "failed", "step": 0, "failure": failure}))
    os._exit(1)


@trick
def exit_status_of_lies() -> None:
    if os.fork() == 0:  # a process that stays writes down another end as soon as the true one is told
        while not (FOLDER / "exit.json").exists():  # for a moment: whatever it leaves behind is ended
            time.sleep(0.0005)
        (FOLDER / "exit.json").write_text(json.dumps({"pid": 2**70, "exit_code": 2**70, "signal": "\0", "time": 1e300}))
        os._exit(0)


# --- Output
@trick
def output_odd_bytes() -> None:
    os.write(1, b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00 \x08\x08 \xe2\x80\xae <script>alert(1)</script>\x1b[2J\x1b[H\n")
    os.write(1, b"\xff\xfe\x80 broken utf8\n" + b"\r".join(b"%d %%" % n for n in range(100)) + b"\n\n\n")
    os.write(1, b"\xf0\x9f\x98" + b"no end of line")


@trick
def output_of_long_ago() -> None:
    os.utime(FOLDER / "order.json", (-1e11, -1e11))
    os.utime(FOLDER / "output.log", (-1e11, -1e11))
    time.sleep(3)


@trick
def output_one_long_line() -> None:
    for _ in range(160):
        os.write(1, b"x" * 65_536)


@trick
def output_empty_lines() -> None:
    for _ in range(20):
        os.write(1, b"\n" * 10_000)


@trick
def output_flood() -> None:
    """A hundred megabytes as fast as the disk takes them."""
    block = (b"x" * 99 + b"\n") * 10_000
    for _ in range(100):
        os.write(1, block)


@trick
def output_file_is_gone() -> None:
    (FOLDER / "output.log").unlink()
    print("nobody reads this", flush=True)


@trick
def output_is_shortened() -> None:
    print("x" * 1000, flush=True)
    time.sleep(0.3)
    os.truncate(FOLDER / "output.log", 0)
    print("after all", flush=True)


# --- What it leaves behind
@trick
def folder_that_stays() -> None:
    """Not even root removes what is immutable; where the file system knows no such thing, what nobody may write to."""
    kept = FOLDER / "kept" / "here"
    kept.mkdir(parents=True)
    (kept / "file").write_text("stays")
    subprocess.run(["chattr", "+i", kept / "file"], check=False, stderr=subprocess.DEVNULL)
    kept.chmod(0o500)


@trick
def folder_of_odd_things() -> None:
    os.mkfifo(FOLDER / "pipe")
    (FOLDER / "root").symlink_to("/")
    os.mkdir(os.fsencode(FOLDER) + b"/\xff\xfe")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(FOLDER)
        listener.bind("s")
    artifacts = FOLDER / "artifacts"
    artifacts.mkdir(exist_ok=True)
    os.mkfifo(artifacts / "pipe")
    (artifacts / "passwd").symlink_to("/etc/passwd")
    (artifacts / "passwd.note").write_text('{"kind": "profile"}')


@trick
def folder_very_deep() -> None:
    os.chdir(FOLDER)
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")


@trick
def folder_of_many_files() -> None:
    for number in range(5000):
        (FOLDER / f"file-{number}").touch()


@trick
def folder_is_gone() -> None:
    subprocess.run(["rm", "-rf", str(FOLDER)], check=False)


@trick
def stray_files_among_the_jobs() -> None:
    jobs = FOLDER.parents[2]
    (jobs / "stray").write_text("no job")
    (jobs / "odd" / "g1").mkdir(parents=True)
    (jobs / "odd" / "g1" / "rankx").write_text("no rank")
    (jobs / "odd" / "gx").mkdir()


@trick
def process_that_stays() -> None:
    """A daemon by the book: its own session, no parent, no environment."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "20"], {})
        os._exit(0)
    os.wait()


@trick
def twenty_children() -> None:
    for _ in range(20):
        subprocess.Popen(["sleep", "20"])


# --- How it ends
@trick
def ends_at_once() -> None:
    os._exit(0)


@trick
def ends_by_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@trick
def ends_in_native_code() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


@trick
def ends_with_an_odd_code() -> None:
    os._exit(255)


@trick
def ends_in_a_thread() -> None:
    def fail() -> None:
        raise RuntimeError("in a thread")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()


@trick
def ends_in_a_long_message() -> None:
    raise RuntimeError("x" * 300_000)


@trick
def ends_in_surrogates() -> None:
    raise RuntimeError("\ud800\udfff \0 \x1b[31m")


@trick
def ends_in_recursion() -> None:
    def deeper(depth: int) -> int:
        return deeper(depth + 1) + 1

    deeper(0)


@trick
def takes_all_descriptors() -> None:
    held = []
    with contextlib.suppress(OSError):
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    paceline.log(1, loss=1.0)


# --- What it says to its agent
def agent_socket() -> socket.socket:
    order = json.loads((FOLDER / "order.json").read_text())
    link = socket.socket(socket.AF_UNIX)
    link.connect(order["agent_socket"])
    link.settimeout(2)
    return link


@trick
def agent_told_nonsense() -> None:
    for words in (
        b"\n" * 1000,
        b"{}\n",
        b"null\n",
        b"\xff\xfe\n",
        b'{"type": "hello"}\n',
        b'{"type":"progress","step":-1e400}\n',
        b"[" * 10_000 + b"\n",
    ):
        with agent_socket() as link, contextlib.suppress(OSError):
            link.sendall(words)
            link.recv(1)


@trick
def agent_told_without_end() -> None:
    """A line of eight megabytes, and half a hello that never goes on."""
    with agent_socket() as link, contextlib.suppress(OSError):
        for _ in range(128):
            link.sendall(b"x" * 65_536)
    held = [agent_socket() for _ in range(50)]
    for link in held:
        link.sendall(b'{"type": "hel')
    time.sleep(0.5)


@trick
def agent_told_as_somebody_else() -> None:
    hello = {"type": "hello", "job_id": "0" * 26, "generation": 9, "rank": 99, "pid": 1, "birth": {"generation": 1, "rank": 0}}
    with agent_socket() as link, contextlib.suppress(OSError):
        link.sendall(json.dumps(hello).encode() + b"\n" + b'{"type": "progress", "step": 99999}\n' * 1000)
        link.recv(1)


if __name__ == "__main__":
    print("trick", sys.argv[1], flush=True)
    TRICKS[sys.argv[1]]()
    print("done", flush=True)
