"""The Python stacks of a job's ranks: where each rank is, and which one differs from the others. Pure.

    some ranks wait for the others in a collective, and a rank is elsewhere     that rank differs: the others wait for it
    a rank is stopped by a signal, or has ended, and others still wait          that rank differs
    all ranks wait, in different calls or at different lines                    mismatched calls: those that are not with the majority differ
    no rank waits in a collective, and most are in one function or on one line  those that are elsewhere differ
    all ranks are at the same place                                             none differs

A rank in `backward`, `synchronize` or `clip_grad_norm_` may wait for the others in native code, which no Python stack shows, or be at work. One in
`loss.item()` or `.cpu()` is at a line of its own code: `cluster.policy.quiet` compares several looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from paceline.monitoring.words import plural
from paceline.training.reporting.users_code import place

MAIN_THREAD = "MainThread"
#: Where torch and Paceline itself wait for other ranks, as the agent shortens the names of files.
_WAITING_FILES = (
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/_functional_collectives.py",
    "torch/distributed/rendezvous.py",
    "paceline/distributed/",
)
_WRAPPER_FILES = ("torch/distributed/c10d_logger.py",)
#: Calls into native code that waits for other ranks, among other things that it does: by file, the function and what it is called here.
_MAY_WAIT = {
    "torch/autograd/graph.py": ("_engine_run_backward", "backward"),
    "torch/cuda/__init__.py": ("synchronize", "cuda.synchronize"),
    "torch/cuda/streams.py": ("synchronize", "cuda.synchronize"),
    "torch/nn/utils/clip_grad.py": ("", "clip_grad_norm_"),  # it looks at the norm, which waits for the card
}
#: Groups of ranks that are told one by one.
_MOST_GROUPS = 4
_MOST_NUMBERS = 8

#: What a process of a rank is, in the order in which they are told.
Part = Literal["program", "launcher", "helper"]
Standing = Literal["waits", "may_wait", "elsewhere", "stopped", "ended", "unknown"]


class PythonFrame(msgspec.Struct, frozen=True):
    function: str
    file: str  # of a library and of Paceline, from the package on
    line: int
    own: bool = False  # the user brought this file


class ThreadStack(msgspec.Struct, frozen=True):
    name: str
    frames: tuple[PythonFrame, ...]  # innermost first


class ProcessStack(msgspec.Struct, frozen=True):
    pid: int
    command: str
    threads: tuple[ThreadStack, ...] = ()
    error: str = ""  # why there are no threads
    part: Part = "program"


class StackSample(msgspec.Struct, frozen=True, kw_only=True):
    """The observation of a rank's processes at one moment: programs first, then launchers, then helpers."""

    id: str  # of the request
    processes: tuple[ProcessStack, ...] = ()
    cores: float | None = None  # CPU time that all of them took, by the seconds that passed
    gpu_percent: float | None = None  # utilization of the rank's card; None: there is none, or it does not tell
    error: str = ""  # why there are no processes


@dataclass(frozen=True)
class StackPosition:
    """The place of a rank in its code."""

    standing: Standing
    call: str = ""  # in which it waits, or may wait
    where: str = ""  # the line of the user's code, else the innermost line; of an unknown one: why

    def described(self, *, several: bool) -> str:
        at = f" ({self.where})" if self.where else ""
        match self.standing:
            case "waits":
                return f"{'wait' if several else 'waits'} in {self.call}{at}"
            case "may_wait":
                return f"{'are' if several else 'is'} in {self.call}{at}"
            case "elsewhere":
                return f"{'are' if several else 'is'} at {self.where}"
            case "stopped":
                return f"{'are' if several else 'is'} stopped by a signal (SIGSTOP, or a debugger)"
            case "ended":
                return f"{'have' if several else 'has'} ended"
        return f"{'have' if several else 'has'} no stack: {self.where}"


class Difference(msgspec.Struct, frozen=True):
    """The result of a comparison. `ranks`: those that differ; empty where none does, or none can be named."""

    what: str
    ranks: tuple[int, ...] = ()


def position_of(stacks: StackSample | None) -> StackPosition:
    """The position of a rank, by the main thread of its program. Where a launcher runs several, by that of the first which differs from
    the others."""
    if stacks is None:
        return StackPosition("unknown", where="its agent has not answered")
    main = main_frames(stacks)
    if not main:
        errors = [stacks.error, *(process.error for process in stacks.processes)]
        return StackPosition("unknown", where=next(filter(None, errors), "no Python code runs in it"))
    return _position(main)


def _position(frames: Sequence[PythonFrame]) -> StackPosition:
    where = _where(frames)
    if call := _awaited(frames):
        return StackPosition("waits", call, where)
    function, call = _MAY_WAIT.get(frames[0].file, ("", ""))
    if call and frames[0].function.endswith(function):
        return StackPosition("may_wait", call, where)
    return StackPosition("elsewhere", where=where)


def main_frames(stacks: StackSample) -> tuple[PythonFrame, ...]:
    """The stack that `position_of` uses; empty where there is none."""
    programs = [process for process in stacks.processes if process.part == "program"] or stacks.processes[:1]
    stacks_of = [frames for process in programs if (frames := _main_frames(process))]
    if not stacks_of:
        return ()
    odd = compare({index: _position(frames) for index, frames in enumerate(stacks_of)}).ranks
    return stacks_of[odd[0] if odd else 0]


def _main_frames(process: ProcessStack) -> tuple[PythonFrame, ...]:
    main = [thread for thread in process.threads if thread.name == MAIN_THREAD] or list(process.threads)
    return main[0].frames if main else ()


def equals(answers: Mapping[int, StackSample | None]) -> dict[int, int]:
    """For each rank the first one whose processes have the very same stacks in their main threads. A rank without any is like no other."""
    firsts: dict[tuple[object, ...], int] = {}
    found = {}
    for rank, answer in sorted(answers.items()):
        stack = tuple((process.part, process.error, _main_frames(process)) for process in answer.processes) if answer else ()
        found[rank] = firsts.setdefault(stack, rank) if stack else rank
    return found


def in_words(frames: Sequence[PythonFrame]) -> str:
    """A stack as Python prints one: the innermost frame last."""
    return "\n".join(f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in reversed(frames))


def _where(frames: Sequence[PythonFrame]) -> str:
    frame = next((frame for frame in frames if frame.own), frames[0])
    return place(frame.function, frame.file, frame.line)


def _awaited(frames: Sequence[PythonFrame]) -> str:
    """The call of torch.distributed that the innermost frames belong to: the outermost such call. Empty where the innermost frame is
    something else."""
    names: list[str] = []
    for frame in frames:
        if frame.file.startswith(_WRAPPER_FILES):
            continue
        if not frame.file.startswith(_WAITING_FILES):
            break
        names.append(frame.function)
    return names[-1] if names else ""


def compare(positions: Mapping[int, StackPosition]) -> Difference:
    """The rank that differs, in words that name the other ranks' places too."""
    waiting = _in_state(positions, "waits", "may_wait")
    for standing in ("stopped", "ended", "elsewhere"):
        odd = _in_state(positions, standing)
        if odd and waiting:
            return Difference(f"{_listed(odd)} while {_listed(waiting)}{_unknown(positions)}", tuple(sorted(odd)))
    there = waiting or _in_state(positions, "elsewhere")
    places = _groups(there, by_line=True)
    if len(places) > 1:
        functions = [] if waiting else _groups(there, by_line=False)
        what = "mismatched calls: " if waiting else "no rank waits in a collective: "
        return Difference(f"{what}{_listed(there)}{_unknown(positions)}", _minority(functions if len(functions) > 1 else places))
    if len(there) > 1:
        return Difference(f"{_listed(there)}, none differs from the others{_unknown(positions)}")
    return Difference(_listed(positions)) if positions else Difference("it has no ranks")


def told_apart(positions: Mapping[int, StackPosition], differs: Collection[int]) -> Difference:
    """The difference between these ranks and all others, for which they are found to be elsewhere by more than one look at the stacks."""
    odd = {rank: position for rank, position in positions.items() if rank in differs}
    rest = {rank: position for rank, position in positions.items() if rank not in differs}
    return Difference(f"{_listed(odd)} while {_listed(rest)} and {'stays' if len(rest) == 1 else 'stay'} there", tuple(sorted(odd)))


def _in_state(positions: Mapping[int, StackPosition], *standings: Standing) -> dict[int, StackPosition]:
    return {rank: position for rank, position in positions.items() if position.standing in standings}


def _groups(positions: Mapping[int, StackPosition], *, by_line: bool) -> list[list[int]]:
    """Ranks at the same place, the smallest group first: on one line, or, since ranks at work move from line to line, in one function."""
    groups: dict[tuple[str, str], list[int]] = {}
    for rank, position in sorted(positions.items()):
        where = position.where if by_line else position.where.rpartition(":")[0]
        groups.setdefault((position.call, where), []).append(rank)
    return sorted(groups.values(), key=len)


def _minority(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """All groups but the largest, if that holds more than half of the ranks."""
    others = sorted(rank for group in groups[:-1] for rank in group)
    return tuple(others) if len(groups[-1]) > len(others) else ()


def _unknown(positions: Mapping[int, StackPosition]) -> str:
    unknown = _in_state(positions, "unknown")
    return f"; {_listed(unknown)}" if unknown else ""


def _listed(positions: Mapping[int, StackPosition]) -> str:
    """Ranks with their positions, those of one place together, the largest group first."""
    groups: dict[StackPosition, list[int]] = {}
    for rank, position in sorted(positions.items()):
        groups.setdefault(position, []).append(rank)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    described = [f"{numbered(ranks)} {position.described(several=len(ranks) > 1)}" for position, ranks in largest[:_MOST_GROUPS]]
    left = sum(len(ranks) for _, ranks in largest[_MOST_GROUPS:])
    return ", ".join([*described, f"{plural(left, 'rank')} {'is' if left == 1 else 'are'} elsewhere"] if left else described)


def numbered(ranks: Sequence[int]) -> str:
    """Ranks with their noun: "rank 3", "ranks 0, 2"."""
    shown = ", ".join(map(str, ranks[:_MOST_NUMBERS]))
    more = f" and {len(ranks) - _MOST_NUMBERS} more" if len(ranks) > _MOST_NUMBERS else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


#: CPU time by seconds passed, from which on a rank's processes are at work, also where many share few cores; and so of its card's utilization.
BUSY_CORES = 0.1
BUSY_GPU_PERCENT = 10.0


def all_at_work(stacks: Mapping[int, StackSample | None], positions: Mapping[int, StackPosition]) -> bool:
    """Whether every rank computes. The CPU time of a rank that waits in a collective says nothing: gloo polls, and NCCL keeps a core and
    a card at 100 % while it waits."""
    return bool(positions) and all(
        position.standing in ("elsewhere", "may_wait") and is_busy(stacks.get(rank)) for rank, position in positions.items()
    )


def has_idle_card(stacks: StackSample | None) -> bool:
    return stacks is not None and stacks.gpu_percent is not None and stacks.gpu_percent < BUSY_GPU_PERCENT


def is_busy(stacks: StackSample | None) -> bool:
    return stacks is not None and ((stacks.cores or 0.0) >= BUSY_CORES or (stacks.gpu_percent or 0.0) >= BUSY_GPU_PERCENT)
