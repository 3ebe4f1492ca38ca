"""The entry of a rank: from the order its spawner forks it with to its last word."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from paceline.distributed.script_store import serve_store as serve_store  # called by the spawner, in a process that it forks
from paceline.monitoring.at_end import call_ends
from paceline.monitoring.files import write_durably
from paceline.monitoring.output_stream import output_stream
from paceline.training.link import RankOrder, Result, decode_order
from paceline.training.preload import preload as preload  # called by the spawner, once, before it forks any rank
from paceline.training.rank_folder import RankFolder
from paceline.training.rank_process import RankProcess
from paceline.training.reporting.failures import describe, describe_script, is_the_users
from paceline.training.warm_start import UserProgram, exit_code_of, leave_checkout, run, why_not_warm


def run_rank(order: RankOrder) -> int:
    """Train, leave a `Result` in the rank's folder, return the exit code. The caller exits without clean-up: that frees the peers."""
    process: RankProcess | None = None
    exit_code = 0
    try:
        process = RankProcess(order)
        result = Result(outcome=process.run(), step=process.step)
    except BaseException as error:  # noqa: BLE001 - the border of the process: whatever it was becomes the report
        result, exit_code = last_words(error, process.order if process else order, process.step if process else 0), exit_code_of(error)
    call_ends()
    if process is not None:
        process.close()
        order = process.order
    write_durably(RankFolder.at(Path(order.folder)).result, msgspec.json.encode(result))
    return exit_code


def main() -> int:
    """Run a rank in an interpreter of its own. Its order comes by standard input: as another user it may not read the agent's file.

    Returns the exit code with everything printed: the caller exits without clean-up, as in a forked process.
    """
    order = decode_order(sys.stdin.buffer.read())
    sys.stdout, sys.stderr = output_stream(1), output_stream(2)
    directory = order.working_directory
    leave_checkout()
    if directory is not None:
        sys.path.insert(0, directory)
    preload()
    code = run_rank(order)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # on a full disk, or closed, taken away or replaced by the user's code
            stream.flush()
    return code


def run_script(order: RankOrder, command: Sequence[str]) -> int | None:
    """Run a rank of a script whose command line is that of a Python program. Returns None if it needs an interpreter of its own."""
    program = UserProgram.parse(command)
    if why_not_warm(program) is not None:
        return None
    folder, world = RankFolder.at(Path(order.folder)), order.world

    def report(error: BaseException) -> None:
        result = Result(outcome="failed", step=0, failure=describe_script(error, world.rank, world_size=world.world_size))
        with contextlib.suppress(OSError):  # a full disk, or the script has removed its folder: its output tells
            write_durably(folder.result, msgspec.json.encode(result))

    return run(program, report)


def last_words(error: BaseException, order: RankOrder, step: int) -> Result:
    report = describe(error, order.world.rank, step, world_size=order.world.world_size)
    print(f"ERROR {report.message}" if is_the_users(report) else report.traceback, file=sys.stderr, flush=True)
    return Result(outcome="failed", step=step, failure=report)
