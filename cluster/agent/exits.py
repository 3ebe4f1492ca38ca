"""How a rank ended: the rank's own last word if it left one, else what waitpid and its last lines tell. Pure but for reading."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cluster.agent.folders import set_aside
from cluster.agent.ranks import Ending
from cluster.agent.spawner_link import ExitStatus
from monitoring.files import UnfitFileError, open_file, read_file, write_durably
from training.link import FailureReport, RankFolder, Result
from training.reporting.telltales import MAX_TRACEBACK_CHARACTERS, encodable, in_words, kind_of_words, shortened, without_middle
from training.reporting.users_code import innermost, line_of_crash

LAST_LINES = 30
_LAST_BYTES = 64 << 10
MAX_RESULT_BYTES = 4 << 20
MAX_STATUS_BYTES = 64 << 10
UNCAUGHT = 1  # what Python exits with after an exception that nobody caught
MAX_ERROR_BYTES = 1 << 20
_FRAME = re.compile(r'^  File ".*", line \d+')
#: What torch puts before each line of a traceback once there is a process group.
_OF_RANK = re.compile(r"^\[rank\d+\]: ?")
_RAISED = re.compile(r"^(?P<exception>[^\W\d]\w*(?:\.\w+)*)(?:: (?P<message>.*))?")


def read_ending(folder: RankFolder, earlier: Sequence[RankFolder], rank: int, *, is_script: bool, step: int) -> Ending | None:
    """None while the rank has not exited. `earlier`: the folders of its former places, newest first: it may have ended before it
    left the last of them. `step`: the last one it is known to have reached."""
    status = read_exit_status(folder)
    if status is None:
        return None
    lived_in = next((each for each in (folder, *earlier) if has_spoken(each)), folder)
    result = read_result(lived_in)
    if is_script and result is None and status.exit_code != 0 and (recorded := read_error(lived_in, rank)):
        result = Result(outcome="failed", step=0, failure=recorded)
    traceback = result.failure.traceback if result is not None and result.failure is not None else ""
    return conclude(status, result, last_lines(lived_in.output, besides=traceback), rank=rank, is_script=is_script, step=step)


def has_spoken(folder: RankFolder) -> bool:
    """Its spawner makes the output file; whatever is in it is the rank's own."""
    return folder.result.exists() or (folder.output.exists() and folder.output.stat().st_size > 0)


def conclude(status: ExitStatus, result: Result | None, lines: tuple[str, ...], *, rank: int, is_script: bool, step: int) -> Ending:
    """The outcome of an exit. A script's is its exit code's; what it raised says why. One that ends well since it was told to end has not
    completed."""
    step = result.step if result and not is_script else step
    if is_script and status.exit_code == 0:
        return Ending(outcome="paused" if status.ordered else "completed", exit_code=0, step=step, time=status.time)
    if result is not None and result.outcome != "failed" and not is_script:
        return Ending(outcome=result.outcome, exit_code=status.exit_code, signal=status.signal, step=step, time=status.time)
    failure = (result.failure if result else None) or _from_exit(status, lines, rank, step)
    failure = msgspec.structs.replace(
        failure,
        exit_code=status.exit_code,
        signal=status.signal,
        ordered=status.ordered,
        last_lines=failure.last_lines or lines,
        step=max(failure.step, step) if is_script else failure.step,
        time=failure.time or status.time,
    )
    return Ending(outcome="failed", exit_code=status.exit_code, signal=status.signal, step=step, time=status.time, failure=failure)


def raised(lines: Sequence[str]) -> tuple[str, str] | None:
    """(exception, message) of the last Python traceback in a rank's output: the first line after its frames that is not indented."""
    plain = [_OF_RANK.sub("", line) for line in lines]
    frames = [number for number, line in enumerate(plain) if _FRAME.match(line)]
    if not frames:
        return None
    rest = (line for line in plain[frames[-1] + 1 :] if line and not line[0].isspace())
    found = _RAISED.fullmatch(next(rest, ""))
    return (found["exception"], (found["message"] or "").strip()) if found else None


def read_error(folder: RankFolder, rank: int) -> FailureReport | None:
    """What torch's `record` has left of an exception; None where there is nothing of the kind, or nothing that can be read."""
    try:
        content = msgspec.json.decode(read_file(folder.error, MAX_ERROR_BYTES), type=_ErrorFile).message
        when = float(content.extra.timestamp or 0.0)
    except (OSError, ValueError):
        return None
    exception, _, message = content.message.partition(": ")
    return _exception(exception, message or exception, content.extra.py_callstack, rank, when if math.isfinite(when) else 0.0)


class _ErrorInfo(msgspec.Struct, frozen=True):
    py_callstack: str = ""
    timestamp: str = ""


class _ErrorMessage(msgspec.Struct, frozen=True, rename={"extra": "extraInfo"}):
    message: str
    extra: _ErrorInfo = _ErrorInfo()


class _ErrorFile(msgspec.Struct, frozen=True):
    """`TORCHELASTIC_ERROR_FILE`, as torch.distributed.elastic.multiprocessing.errors.error_handler writes it."""

    message: _ErrorMessage


def _exception(exception: str, message: str, traceback: str, rank: int, when: float) -> FailureReport:
    kind = kind_of_words(exception, message)
    return FailureReport(
        kind=kind,
        rank=rank,
        message=shortened(encodable(in_words(kind, message))),
        exception=shortened(encodable(exception)),
        traceback=without_middle(encodable(traceback), MAX_TRACEBACK_CHARACTERS),
        where=innermost(traceback),
        time=when,
    )


def _raised_before_order(status: ExitStatus, lines: Sequence[str]) -> tuple[str, str] | None:
    """What a rank had raised that was told to end while it still cleaned up: then a traceback is the last thing that it has printed."""
    found = raised(lines) if status.ordered else None
    last = next((_OF_RANK.sub("", line) for line in reversed(lines) if line.strip()), "")
    return found if found is not None and last.startswith(found[0]) else None


def _from_exit(status: ExitStatus, lines: Sequence[str], rank: int, step: int) -> FailureReport:
    """In the agent's words, for a rank that had none; a script's uncaught exception speaks from its output."""
    if status.out_of_memory:
        message = (
            "killed by SIGKILL: the kernel's out-of-memory killer struck; use a smaller micro-batch or model, or a larger memory limit"
        )
        return FailureReport(kind="out_of_memory", rank=rank, message=message, step=step, time=status.time)
    uncaught = raised(lines) if status.exit_code == UNCAUGHT else _raised_before_order(status, lines)
    if status.signal is not None and uncaught is None:
        where = line_of_crash("\n".join(lines))
        message = f"killed by {status.signal}"
        if status.killed_after is not None:
            message = f"did not end within {status.killed_after:g} s of SIGTERM, and was killed"
        return FailureReport(kind="signal", rank=rank, message=message, where=where, step=step, time=status.time)
    if uncaught is not None:
        exception, text = uncaught
        shown = "\n".join(_OF_RANK.sub("", line) for line in lines)
        return msgspec.structs.replace(_exception(exception, text or exception, "", rank, status.time), where=innermost(shown), step=step)
    if status.unreadable:
        message = "ended, and how was lost: what its node had written down of it was damaged"
    elif status.exit_code is None:
        message = "could not be started: the node has too many processes, too little memory, or a full disk"
    elif status.exit_code == 0:
        message = "exited with code 0 before it had finished"
    else:
        message = f"exited with code {status.exit_code}"
    return FailureReport(kind="exit", rank=rank, message=message, step=step, time=status.time)


def read_exit_status(folder: RankFolder) -> ExitStatus | None:
    """None while the rank has not exited. A damaged status is set aside, and one that says so takes its place: the rank has ended."""
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
    """None where the rank left none, or none that can be read, which is set aside: then the exit itself speaks."""
    try:
        return msgspec.json.decode(read_file(folder.result, MAX_RESULT_BYTES), type=Result)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        set_aside(folder.result, error)
        return None


def last_lines(output: Path, count: int = LAST_LINES, *, besides: str = "") -> tuple[str, ...]:
    """What else a rank said than `besides`, which is told apart: a long traceback must not hide what came before it."""
    try:
        with open_file(output) as file:
            file.seek(max(0, file.seek(0, 2) - _LAST_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:  # none, or the rank has put something else in its place
        return ()
    if besides.strip():
        before, _, after = text.rpartition(besides.strip())
        text = before + after.lstrip("\n")
    return tuple(line.replace("\0", "\ufffd") for line in text.splitlines()[-count:])
