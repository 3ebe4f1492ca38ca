"""The entry of a rank: from the order its spawner forks it with to its last word."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from distributed.script_store import serve_store as serve_store  # called by the spawner, in a process that it forks
from monitoring.files import write_durably
from training.life import Life
from training.link import RankFolder, RankOrder, Result
from training.preload import preload as preload  # called by the spawner, once, before it forks any rank
from training.reporting.failures import describe, describe_script, exit_code_of, is_the_users
from training.spec.job import JobSpec
from training.warm_start import Program, run, why_not_warm


def run_rank(order: RankOrder) -> int:
    """Train, leave a `Result` in the rank's folder, return the exit code. The caller exits without clean-up: that frees the peers."""
    life: Life | None = None
    exit_code = 0
    try:
        life = Life(order)
        result = Result(outcome=life.live(), step=life.step)
    except BaseException as error:  # noqa: BLE001 - the border of the process: whatever it was becomes the report
        result, exit_code = last_words(error, life.order if life else order, life.step if life else 0), exit_code_of(error)
    if life is not None:
        life.close()
        order = life.order
    write_durably(RankFolder.at(Path(order.folder)).result, msgspec.json.encode(result))
    return exit_code


def main() -> int:
    """Be a rank in an interpreter of its own. Its order comes by standard input: as another user it may not read the agent's file."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=RankOrder)
    directory = JobSpec.model_validate(order.spec).environment.working_directory
    if directory is not None:
        sys.path.insert(0, directory)
    preload()
    return run_rank(order)


def run_script(order: RankOrder, command: Sequence[str]) -> int | None:
    """Be a rank of a script, whose command line is that of a Python program. None: it needs an interpreter of its own."""
    program = Program.parse(command)
    if why_not_warm(program) is not None:
        return None
    folder, rank = RankFolder.at(Path(order.folder)), order.world.rank

    def report(error: BaseException) -> None:
        result = Result(outcome="failed", step=0, failure=describe_script(error, rank))
        with contextlib.suppress(OSError):  # a full disk, or the script has removed its folder: its output tells
            write_durably(folder.result, msgspec.json.encode(result))

    return run(program, report)


def last_words(error: BaseException, order: RankOrder, step: int) -> Result:
    report = describe(error, order.world.rank, step)
    print(f"ERROR {report.message}" if is_the_users(report) else report.traceback, file=sys.stderr, flush=True)
    return Result(outcome="failed", step=step, failure=report)
