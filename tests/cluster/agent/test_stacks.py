"""Stacks of real processes by the real py-spy, and what is said where there are none."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent import stacks
from paceline.cluster.agent.processes import cpu_seconds_of, python_processes_of
from paceline.cluster.agent.stacks import MISSING, MOST_BYTES, MOST_FRAMES, REFUSED, StackReader, bounded, parse, short, why
from paceline.cluster.stacks import ProcessStack, PythonFrame, StackSample, ThreadStack, main_frames, position_of
from paceline.training.reporting.users_code import is_users

STARTED_SECONDS = 30.0
EMPTY = StackSample(id="r1", cores=0.5)
#: A launcher that runs a worker with a helper of multiprocessing; each says when it is there, and waits.
LAUNCHER = """
import subprocess, sys, time
while time.process_time() < 0.1: pass
subprocess.run([sys.executable, sys.argv[1]])
"""
WORKER = """
import multiprocessing, sys

def help(pipe):
    pipe.send("here")
    pipe.recv()

def wait_for_input():
    print("ready", flush=True)
    sys.stdin.read()

if __name__ == "__main__":
    mine, its = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=help, args=(its,), daemon=True).start()
    mine.recv()
    wait_for_input()
"""


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A launcher in a session of its own, as a rank is."""
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, str(tmp_path / "launcher.py"), str(tmp_path / "worker.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate(timeout=STARTED_SECONDS)  # its input ends, and so do all of them


async def test_the_program_comes_before_its_launcher_and_its_helpers(rank: subprocess.Popen[str]) -> None:
    found = await StackReader().read(EMPTY, rank.pid)
    assert (found.id, found.cores, found.error) == ("r1", 0.5, "")
    worker, launcher, helper = found.processes
    assert [process.part for process in found.processes] == ["program", "launcher", "helper"]
    assert launcher.pid == rank.pid
    assert worker.threads[0].name == "MainThread"
    assert [frame.function for frame in main_frames(found)[-2:]] == ["wait_for_input", "<module>"]
    assert all(frame.own for frame in main_frames(found)[-2:])
    assert position_of(found).where.startswith("wait_for_input in worker.py:")
    assert "help" in [frame.function for frame in helper.threads[0].frames]


def test_cpu_time_counts_everything_that_a_rank_has_started(rank: subprocess.Popen[str]) -> None:
    spent = cpu_seconds_of([rank.pid, 2**22 + 1])
    assert spent[rank.pid] > 0.08  # the launcher's own 0.1 s, as the kernel's ticks count it
    assert spent[2**22 + 1] == 0.0
    worker = next(iter(python_processes_of(rank.pid)))
    assert spent[rank.pid] > cpu_seconds_of([worker])[worker]


async def test_a_rank_without_python_and_one_that_is_gone_say_so() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    assert (await StackReader().read(EMPTY, process.pid)).error == "no Python program runs in it"
    process.kill()
    await process.wait()
    assert (await StackReader().read(EMPTY, process.pid)).error == "no Python program runs in it"


def program(folder: Path, source: str) -> str:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{source}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("echo \"Permission Denied: Try running again with elevated permissions by going 'sudo'\" >&2; exit 1", REFUSED),
        (
            "echo 'Error: Failed to find python version from target process' >&2; exit 1",
            "Failed to find python version from target process",
        ),
        ("exit 3", "py-spy failed without a word"),
        ("exec sleep 60", "py-spy gave no answer within 0.2 s"),
        ("echo surprise", "what py-spy said cannot be read: JSON is malformed: invalid character (byte 0)"),
    ],
)
async def test_what_is_wrong_stands_in_the_place_of_the_stack(tmp_path: Path, rank: subprocess.Popen[str], source: str, error: str) -> None:
    seconds = 0.2 if "sleep" in source else STARTED_SECONDS
    found = await StackReader(program(tmp_path, source), seconds=seconds).read(EMPTY, rank.pid)
    assert {process.error for process in found.processes} == {error}
    assert position_of(found).where == error


async def test_a_node_without_py_spy_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks.shutil, "which", lambda *_, **__: None)  # type: ignore[attr-defined]
    assert (await StackReader().read(EMPTY, os.getpid())).error == MISSING


def test_the_way_out_of_a_refusal_names_containers_and_yama() -> None:
    assert why("Error: Operation not permitted (os error 1)") == REFUSED
    assert "SYS_PTRACE" in REFUSED
    assert "kernel.yama.ptrace_scope" in REFUSED


def document(*names: str, thread: int = 7, file: str = "/home/ada/t.py") -> dict[str, object]:
    frames = [{"name": name, "filename": file, "line": 1} for name in names]
    return {"pid": 7, "thread_name": "whatever", "os_thread_id": thread, "frames": frames}


def test_the_main_thread_comes_first_and_a_deep_stack_keeps_both_ends() -> None:
    deep = [f"f{index}" for index in range(500)]
    found = parse(msgspec.json.encode([document("g", thread=8), document(*deep)]), 7)
    assert [thread.name for thread in found] == ["MainThread", "whatever"]
    assert len(found[0].frames) == MOST_FRAMES
    assert (found[0].frames[0].function, found[0].frames[-1].function) == ("f0", "f499")


def test_how_a_forked_rank_was_started_is_left_out() -> None:
    ours = str(Path(stacks.__file__).parents[2] / "training" / "warm_start.py")
    frames = [*document("step", "<module>")["frames"], *document("_execute", "run", file=ours)["frames"]]  # type: ignore[misc]
    (main,) = parse(msgspec.json.encode([{"os_thread_id": 7, "frames": frames}]), 7)
    assert [frame.function for frame in main.frames] == ["step", "<module>"]


@pytest.mark.parametrize(
    ("file", "shown", "own"),
    [
        ("/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "torch/distributed/distributed_c10d.py", False),
        ("/usr/lib/python3.12/threading.py", "threading.py", False),
        (str(Path(stacks.__file__).parents[2] / "distributed" / "ring.py"), "paceline/distributed/ring.py", False),
        ("/home/ada/train.py", "/home/ada/train.py", True),
        ("/home/ada/train", "/home/ada/train", True),
        ("/opt/venv/bin/torchrun", "/opt/venv/bin/torchrun", False),
        ("<frozen runpy>", "<frozen runpy>", False),
    ],
)
def test_a_file_is_shown_from_its_package_on(file: str, shown: str, own: bool) -> None:
    assert (short(file), is_users(file)) == (shown, own)


def test_an_answer_is_bounded() -> None:
    frames = tuple(PythonFrame("f" * 100, "g" * 100, 1) for _ in range(40))
    process = ProcessStack(1, "python", tuple(ThreadStack(f"t{index}", frames) for index in range(16)))
    found = bounded(StackSample(id="r", processes=(process,) * 8))
    assert len(msgspec.json.encode(found)) <= MOST_BYTES
    assert [len(each.threads) for each in found.processes] in ([1] * 8, [1])
    assert bounded(found) == found


def test_names_of_functions_that_no_database_stores_are_shown_without_those_characters() -> None:
    output = msgspec.json.encode([{"thread_name": "a\0b", "frames": [{"name": "c\0d", "filename": "e\0f", "line": 1}]}])
    (thread,) = parse(output, 7)
    assert (thread.name, thread.frames[0].function, thread.frames[0].file) == ("a\ufffdb", "c\ufffdd", "e\ufffdf")
