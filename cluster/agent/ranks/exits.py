"""How a rank ended: by its own report if it left one, else by waitpid and its last lines. Pure except for reading files."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from paceline.cluster.agent.folders import set_aside
from paceline.cluster.agent.ranks.boxed_tracebacks import unboxed
from paceline.cluster.agent.ranks.rank_claims import MOST_LINES, bounded_failure
from paceline.cluster.agent.ranks.ranks import ExitCause
from paceline.cluster.agent.ranks.tracebacks import FAR, UncaughtException, last_words, uncaught, without_rank, without_traceback
from paceline.cluster.agent.spawner_link import ExitStatus
from paceline.monitoring.files import UnfitFileError, open_file, read_file, write_durably
from paceline.training.link import FailureReport, RankPlace, Result
from paceline.training.rank_folder import RankFolder
from paceline.training.reporting.failure_kinds import (
    MAX_TRACEBACK_CHARACTERS,
    encodable,
    in_words,
    kind_of_words,
    original,
    shortened,
    without_middle,
)
from paceline.training.reporting.users_code import folded, innermost, line_of_crash

LAST_LINES = MOST_LINES
_LAST_BYTES = 64 << 10
MAX_RESULT_BYTES = 4 << 20
MAX_STATUS_BYTES = 64 << 10
UNCAUGHT = 1  # what Python exits with after an uncaught exception
USAGE = 2  # what argparse, click and many others exit with where an argument is wrong, after a line about it
MAX_ERROR_BYTES = 1 << 20
#: What Python's fault handler says of a crash, and of a thread that runs no Python code.
_CRASHED, _NO_FRAME = "Fatal Python error: ", "  <no Python frame>"
#: What the C++ library says before that, where a thread was still there when what owns it was destroyed.
_THREAD_LEFT = "terminate called without an active exception"
#: NCCL's watchdog ends a process so whose peers do not come to a collective. What it says of a card's own error is not meant.
_WATCHDOG = re.compile(r"Watchdog caught collective operation timeout|ProcessGroupNCCL.*(remote process exited|ncclRemoteError)")
_WATCHDOG_ENDED = "lost the connection to another rank: NCCL's watchdog ended this one, since a collective operation was not answered"


def read_exit_cause(folder: RankFolder, earlier: Sequence[RankFolder], world: RankPlace, *, is_script: bool, step: int) -> ExitCause | None:
    """How a rank ended; None while it has not exited. `earlier`: the folders of its former places, newest first: the rank may have ended
    before it left the last of them. `world`: its place. `step`: the last step it is known to have reached."""
    status = read_exit_status(folder)
    if status is None:
        return None
    lived_in = next((each for each in (folder, *earlier) if has_output(each)), folder)
    result = read_result(lived_in)
    if is_script and result is None and status.exit_code != 0 and (recorded := read_error(lived_in, world)):
        result = Result(outcome="failed", step=0, failure=recorded)
    traceback = result.failure.traceback if result is not None and result.failure is not None else ""
    return conclude(status, result, last_lines(lived_in.output, FAR, besides=traceback), world, is_script=is_script, step=step)


def has_output(folder: RankFolder) -> bool:
    """Whether a rank has written output. Its spawner makes the output file; any content is the rank's own."""
    return folder.result.exists() or (folder.output.exists() and folder.output.stat().st_size > 0)


def conclude(
    status: ExitStatus, result: Result | None, lines: tuple[str, ...], world: RankPlace, *, is_script: bool, step: int
) -> ExitCause:
    """The outcome of an exit. A script's exit code decides its outcome, and what it raised gives the reason. A script that exits with 0
    after it was told to end has not completed."""
    step = result.step if result and not is_script else step
    if is_script and status.exit_code == 0:
        return ExitCause(outcome="paused" if status.ordered else "completed", exit_code=0, step=step, time=status.time)
    if result is not None and result.outcome != "failed" and not is_script:
        return ExitCause(outcome=result.outcome, exit_code=status.exit_code, signal=status.signal, step=step, time=status.time)
    failure = (result.failure if result else None) or _from_exit(status, lines, world, step)
    failure = replace(
        failure,
        exit_code=status.exit_code,
        signal=status.signal,
        ordered=status.ordered,
        last_lines=failure.last_lines or lines[-LAST_LINES:],
        step=max(failure.step, step) if is_script else failure.step,
        time=failure.time or status.time,
    )
    failure = bounded_failure(failure)
    return ExitCause(outcome="failed", exit_code=status.exit_code, signal=status.signal, step=step, time=status.time, failure=failure)


def read_error(folder: RankFolder, world: RankPlace) -> FailureReport | None:
    """The exception that torch's `record` wrote to a file; None where there is none, or none that can be read."""
    try:
        content = msgspec.json.decode(read_file(folder.error, MAX_ERROR_BYTES), type=_ErrorFile).message
        when = float(content.extra.timestamp or 0.0)
    except (OSError, ValueError):
        return None
    exception, _, message = content.message.partition(": ")
    told = _exception(exception, message or exception, content.extra.py_callstack, world)
    return replace(told, time=when if math.isfinite(when) else 0.0)


class _ErrorInfo(msgspec.Struct, frozen=True):
    py_callstack: str = ""
    timestamp: str = ""


class _ErrorMessage(msgspec.Struct, frozen=True, rename={"extra": "extraInfo"}):
    message: str
    extra: _ErrorInfo = _ErrorInfo()


class _ErrorFile(msgspec.Struct, frozen=True):
    """The file `TORCHELASTIC_ERROR_FILE`, as torch.distributed.elastic.multiprocessing.errors.error_handler writes it."""

    message: _ErrorMessage


def _exception(exception: str, message: str, traceback: str, world: RankPlace) -> FailureReport:
    kind = kind_of_words(exception, message, traceback, world.world_size)
    return FailureReport(
        kind=kind,
        rank=world.rank,
        message=shortened(encodable(in_words(kind, original(exception, message)))),
        exception=shortened(encodable(exception)),
        traceback=without_middle(encodable(traceback), MAX_TRACEBACK_CHARACTERS),
        users_traceback=without_middle(encodable(folded(traceback)), MAX_TRACEBACK_CHARACTERS),
        where=innermost(traceback),
    )


def _raised_before_order(status: ExitStatus, lines: Sequence[str]) -> UncaughtException | None:
    """The exception that a rank raised when it was told to end while it still cleaned up: then a traceback is the last thing that it has
    printed, but for what is printed at exit. Other lines may follow a traceback with a rank before each line: torch prints one so only where nothing
    catches the exception."""
    found = uncaught(lines) if status.ordered else None
    if found is None:
        return None
    last = next((without_rank(line) for line in reversed(lines) if line.strip()), "")
    ended = [line for line in lines if line.startswith("[rank") and without_rank(line).startswith(found.exception)]
    return found if ended or last.startswith(found.exception) else None


def _raised_before_abort(status: ExitStatus, lines: Sequence[str]) -> UncaughtException | None:
    """The exception of a rank whose interpreter was ending because of it when a thread of torch's, which still ran, aborted the process: Python's
    fault handler finds no Python frame any more."""
    return uncaught(_before_abort(status, lines))


def _before_abort(status: ExitStatus, lines: Sequence[str]) -> Sequence[str]:
    """What a rank had printed when a thread of torch's aborted the process whose interpreter was ending; empty where none did."""
    crash = next((number for number, line in enumerate(lines) if line.startswith(_CRASHED)), None)
    if status.signal is None or crash is None or _NO_FRAME not in lines[crash:]:
        return ()
    return lines[:crash]


def _exit_words(status: ExitStatus, lines: Sequence[str]) -> str:
    """The last words of a rank that was aborted while it exited, as after `sys.exit("no data")`: its exit code is lost. Empty where it was not."""
    before = _before_abort(status, lines)
    return last_words(before[:-1]) if before and before[-1] == _THREAD_LEFT else ""


def _from_exit(status: ExitStatus, lines: Sequence[str], world: RankPlace, step: int) -> FailureReport:
    """The agent's description of an exit, for a rank that left no report; a script's uncaught exception is read from its output."""
    told = FailureReport(kind="exit", rank=world.rank, message="", step=step, time=status.time)
    lines = unboxed(lines)
    if status.out_of_memory:
        message = (
            "killed by SIGKILL: the kernel's out-of-memory killer struck; use a smaller micro-batch or model, or a larger memory limit"
        )
        return replace(told, kind="out_of_memory", message=message)
    otherwise = _raised_before_order(status, lines) or _raised_before_abort(status, lines[-LAST_LINES:])
    found = uncaught(lines) if status.exit_code == UNCAUGHT else otherwise
    if found is not None:
        own = _exception(found.exception, found.message or found.exception, found.traceback, world)
        return replace(own, traceback="", users_traceback="", step=step, time=status.time)  # its last lines show it
    if status.signal is not None:
        return _from_signal(status, lines[-LAST_LINES:], world, told)
    if status.unreadable:
        message = "ended, and how was lost: what its node had written down of it was damaged"
    elif status.exit_code is None:
        message = "could not be started: the node has too many processes, too little memory, or a full disk"
    elif status.exit_code == 0:
        message = "exited with code 0 before it had finished"
    else:
        message = f"exited with code {status.exit_code}"
    if status.exit_code in (UNCAUGHT, USAGE) and (words := last_words(lines)):  # as `sys.exit("no data")` does
        message = shortened(encodable(f"{message}; its last line: {words}"))
    return replace(told, message=message)


def _from_signal(status: ExitStatus, lines: Sequence[str], world: RankPlace, told: FailureReport) -> FailureReport:
    text = "\n".join(lines)
    if status.signal == "SIGABRT" and world.world_size > 1 and _WATCHDOG.search(text):
        return replace(told, kind="peer_lost", message=_WATCHDOG_ENDED)
    if words := _exit_words(status, lines):
        message = f"aborted by a thread of its own while it exited ({status.signal}); its last line: {words}"
        return replace(told, message=shortened(encodable(message)))
    message = f"killed by {status.signal}"
    if status.killed_after is not None:
        message = f"did not end within {status.killed_after:g} s of SIGTERM, and was killed"
    return replace(told, kind="signal", message=message, where=line_of_crash(text))


def read_exit_status(folder: RankFolder) -> ExitStatus | None:
    """The exit status of a rank; None while it has not exited. A damaged status is set aside, and replaced by one that says so: the rank
    has ended."""
    try:
        return msgspec.json.decode(read_file(folder.exit_status, MAX_STATUS_BYTES), type=ExitStatus)
    except FileNotFoundError:
        return None
    except (UnfitFileError, ValueError) as error:
        set_aside(folder.exit_status, error)
        status = ExitStatus(pid=0, exit_code=None, signal=None, time=time.time(), unreadable=True)
        write_durably(folder.exit_status, msgspec.json.encode(status))
        return status


def read_result(folder: RankFolder) -> Result | None:
    """The result that a rank left; None where it left none, or an unreadable one, which is set aside: then the exit itself counts."""
    try:
        return msgspec.json.decode(read_file(folder.result, MAX_RESULT_BYTES), type=Result)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        set_aside(folder.result, error)
        return None


def last_lines(output: Path, count: int = LAST_LINES, *, besides: str = "") -> tuple[str, ...]:
    """The last lines of a rank's output without the traceback `besides`, which is reported apart: a long one must not hide the lines before it."""
    try:
        with open_file(output) as file:
            file.seek(max(0, file.seek(0, 2) - _LAST_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:  # none, or the rank has put something else in its place
        return ()
    lines = without_traceback(text.splitlines(), besides)
    return tuple(line.replace("\0", "\ufffd") for line in lines[-count:])
