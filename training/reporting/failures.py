"""Failures of a rank as a `FailureReport`: their kind, and a message that helps."""

from __future__ import annotations

import errno
import time
import traceback
from typing import Literal

import torch
from pydantic import ValidationError

from paceline.distributed.errors import DistributedError
from paceline.parallelism.compiled import CompilerError
from paceline.parallelism.data_parallel.replicated import ForwardBypassedError
from paceline.parallelism.pipelines.chain import UnsplittableModelError
from paceline.parallelism.pipelines.stages import TooFewUnitsError
from paceline.parallelism.pipelines.step import BoundaryMismatchError
from paceline.parallelism.plan import WorldSizeMismatchError
from paceline.parallelism.tensor_context.shard_model import CannotShardError
from paceline.training.errors import AbandonedError, CheckpointError, CheckpointUnreachableError, InvalidInputError
from paceline.training.link import FailureReport
from paceline.training.optim.bad_loss import LossNotFiniteError, LossSpikeError, RollBackError
from paceline.training.reporting.failure_kinds import (
    MAX_TRACEBACK_CHARACTERS,
    OUT_OF_MEMORY,
    encodable,
    in_words,
    kind_of_words,
    original,
    shortened,
    without_middle,
)
from paceline.training.reporting.lost_peers import is_lost_peer
from paceline.training.reporting.suggestions import suggestion
from paceline.training.reporting.users_code import folded, innermost, innermost_file
from paceline.training.warm_start import exit_code_of

FailureKind = Literal[
    "exception", "out_of_memory", "peer_lost", "invalid_input", "checkpoint_failed", "exit", "loss_not_finite", "loss_spike", "rolled_back"
]

#: What does not fit the plan, and would not on any other rank either.
UNFIT = WorldSizeMismatchError | CannotShardError | UnsplittableModelError | TooFewUnitsError | BoundaryMismatchError | ForwardBypassedError


def describe(error: BaseException, rank: int, step: int, *, world_size: int) -> FailureReport:
    """The report of an exception that ended a rank of the trainer's, in a world of this size."""
    return _report(error, kind_of(error, world_size), rank, step)


def describe_script(error: BaseException, rank: int, *, world_size: int) -> FailureReport:
    """The report of an exception that a script raised. Its classes are the user's, or imported anew: names and words tell its kind."""
    text = text_of(error)
    if runs_out_of_memory(error, text):
        return _report(error, "out_of_memory", rank, 0)
    return _report(error, kind_of_words(name_of(error), text, traceback_of(error), world_size), rank, 0)


def _report(error: BaseException, kind: FailureKind, rank: int, step: int) -> FailureReport:
    message = encodable(message_of(error, kind))
    traceback_text = encodable(traceback_of(error))
    return FailureReport(
        kind=kind,
        rank=rank,
        message=shortened(message),
        exception=name_of(error),
        traceback=without_middle(traceback_text, MAX_TRACEBACK_CHARACTERS),
        users_traceback=without_middle(folded(traceback_text), MAX_TRACEBACK_CHARACTERS),
        where=innermost(traceback_text),
        step=step,
        time=time.time(),
        exit_code=exit_code_of(error),
    )


def name_of(error: BaseException) -> str:
    """The qualified name of an exception's class, as Python prints it."""
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def raised_in(error: BaseException) -> str:
    """The file of the innermost frame outside the standard library; empty where it was not raised."""
    return innermost_file(frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))


def kind_of(error: BaseException, world_size: int) -> FailureKind:
    text = text_of(error)
    match error:
        case InvalidInputError() | ValidationError() | CompilerError() | ImportError():  # what is not installed will not be after a restart
            return "invalid_input"
        case CheckpointUnreachableError():
            return "exception"  # another node may read it, or this one later: worth a restart
        case CheckpointError():
            return "checkpoint_failed"
        case LossNotFiniteError():
            return "loss_not_finite"
        case LossSpikeError():
            return "loss_spike"
        case RollBackError():
            return "rolled_back"
        case SystemExit() | KeyboardInterrupt():
            return "exit"
        case DistributedError() | AbandonedError():
            return "peer_lost"
    if isinstance(error, UNFIT):
        return "invalid_input"
    if runs_out_of_memory(error, text):
        return "out_of_memory"
    if is_lost_peer(name_of(error), text, raised_in(error), world_size):
        return "peer_lost"
    return "exception"


def runs_out_of_memory(error: BaseException, text: str) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(text) is not None


def message_of(error: BaseException, kind: FailureKind) -> str:
    text = text_of(error).strip() or type(error).__name__
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return f"sys.exit with code {exit_code_of(error)} before it had finished"
    if isinstance(error, BaseExceptionGroup):
        text = f"{text}: {'; '.join(one_line(member) for member in error.exceptions)}"
    text += suggestion(error, text)
    return in_words(kind, original(type(error).__name__, text))


def text_of(error: BaseException) -> str:
    """The message of an exception; where its own `__str__` raises, what a traceback says in its place."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the class is the user's
        return "<exception str() failed>"


def one_line(error: BaseException) -> str:
    """The class and message of an exception, as the last line of its traceback has them."""
    return "".join(traceback.format_exception_only(error)).strip()


def is_the_users(report: FailureReport) -> bool:
    """Return whether the message alone shows a user what to change, so that no traceback is needed. An import may stand anywhere in the code."""
    if report.exception in ("ImportError", "ModuleNotFoundError"):
        return False
    return report.kind in ("invalid_input", "loss_not_finite", "loss_spike", "rolled_back")
