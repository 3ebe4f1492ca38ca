"""Whatever ends a rank, as one `FailureReport`: what kind it is, and in words that help."""

from __future__ import annotations

import errno
import time
import traceback
from typing import Literal

import torch
from pydantic import ValidationError

from distributed.errors import DistributedError
from parallelism.compiled import CompilerError
from parallelism.cut.cut_model import CannotCutError
from parallelism.pipelines.chain import UncuttableModelError
from parallelism.pipelines.stages import TooFewUnitsError
from parallelism.pipelines.step import BoundaryMismatchError
from parallelism.plan import WorldSizeMismatchError
from training.errors import AbandonedError, CheckpointError, CheckpointUnreachableError, InvalidInputError
from training.link import FailureReport
from training.reporting.telltales import (
    MAX_TRACEBACK_CHARACTERS,
    OUT_OF_MEMORY,
    PEER_LOST,
    encodable,
    in_words,
    kind_of_words,
    shortened,
    without_middle,
)
from training.reporting.users_code import innermost

Kind = Literal["exception", "out_of_memory", "peer_lost", "invalid_input", "checkpoint_failed", "exit"]

#: What does not fit the plan, and would not on any other rank either.
UNFIT = WorldSizeMismatchError | CannotCutError | UncuttableModelError | TooFewUnitsError | BoundaryMismatchError


def describe(error: BaseException, rank: int, step: int) -> FailureReport:
    """The report of an exception that ended a rank of the trainer's."""
    return _report(error, kind_of(error), rank, step)


def describe_script(error: BaseException, rank: int) -> FailureReport:
    """The report of an exception that a script raised. Its classes are the user's, or imported anew: names and words tell its kind."""
    return _report(error, kind_of_words(type(error).__name__, str(error)), rank, 0)


def _report(error: BaseException, kind: Kind, rank: int, step: int) -> FailureReport:
    message = encodable(message_of(error, kind))
    traceback_text = encodable("".join(traceback.format_exception(error)))
    return FailureReport(
        kind=kind,
        rank=rank,
        message=shortened(message),
        exception=f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."),
        traceback=without_middle(traceback_text, MAX_TRACEBACK_CHARACTERS),
        where=innermost(traceback_text),
        step=step,
        time=time.time(),
        exit_code=exit_code_of(error),
    )


def kind_of(error: BaseException) -> Kind:
    text = str(error)
    match error:
        case InvalidInputError() | ValidationError() | CompilerError():
            return "invalid_input"
        case CheckpointUnreachableError():
            return "exception"  # another node may read it, or this one later: worth a restart
        case CheckpointError():
            return "checkpoint_failed"
        case SystemExit() | KeyboardInterrupt():
            return "exit"
        case DistributedError() | AbandonedError():
            return "peer_lost"
    if isinstance(error, UNFIT):
        return "invalid_input"
    if runs_out_of_memory(error, text):
        return "out_of_memory"
    if isinstance(error, RuntimeError | ConnectionError) and PEER_LOST.search(text):
        return "peer_lost"
    return "exception"


def exit_code_of(error: BaseException) -> int:
    """The interpreter's own: sys.exit decides, and anything else is 1."""
    if not isinstance(error, SystemExit) or isinstance(error.code, str):
        return 1
    return 0 if error.code is None else int(error.code) & 0xFF


def runs_out_of_memory(error: BaseException, text: str) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(text) is not None


def message_of(error: BaseException, kind: Kind) -> str:
    text = str(error).strip() or type(error).__name__
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return f"sys.exit with code {exit_code_of(error)} before it had finished"
    return in_words(kind, text)


def is_the_users(report: FailureReport) -> bool:
    """Nobody needs a traceback to see what to change."""
    return report.kind == "invalid_input"
