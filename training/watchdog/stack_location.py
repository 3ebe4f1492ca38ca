"""Where the training thread is, read from its stack: which part of a step, which line of the user's code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import torch

from paceline.parallelism.pipelines.stage import Stage
from paceline.training.reporting.users_code import is_users, place
from paceline.training.steps.step import LocalStepRunner
from paceline.training.steps.stepping import StepRunner, fetch

#: Found by the code itself, so that renaming one of them cannot leave this table behind.
_PARTS: dict[CodeType, str] = {
    fetch.__code__: "data",
    LocalStepRunner.forward.__code__: "forward",
    Stage.forward.__code__: "forward",
    torch.Tensor.backward.__code__: "backward",
    Stage.backward.__code__: "backward",
    Stage.backward_input.__code__: "backward",
    Stage.backward_weight.__code__: "backward",
    StepRunner.update.__code__: "optimizer",
    inspect.unwrap(StepRunner.evaluate).__code__: "evaluation",
}
_TORCH_DISTRIBUTED = str(Path(torch.distributed.__file__).parent / "distributed_c10d.py")
_PLUMBING = frozenset({"wrapper", "_wait_work", "inner"})


@dataclass(frozen=True)
class StackLocation:
    phase: str
    line: str  # "" where no code of the user's is under way
    own_call: str  # of torch.distributed, made by user code; "" if there is none


def locate_stack(thread: int, phase: str) -> StackLocation:
    """`phase`: what it is called where the stack does not tell more."""
    frames = list(_stack(sys._current_frames().get(thread)))  # innermost first
    part = next((_PARTS[frame.f_code] for frame in frames if frame.f_code in _PARTS), phase)
    user = next((frame for frame in frames if is_users(frame.f_code.co_filename)), None)
    return StackLocation(part, _line(user) if user else "", _own_call(frames, user) if user else "")


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _line(frame: FrameType) -> str:
    return place(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)


def _own_call(frames: list[FrameType], user: FrameType) -> str:
    """What of torch.distributed lies right under the user's own line."""
    inner = frames[: frames.index(user)]
    names = [f.f_code.co_name for f in inner if f.f_code.co_filename == _TORCH_DISTRIBUTED and f.f_code.co_name not in _PLUMBING]
    return f"torch.distributed.{names[-1]}" if names else ""
