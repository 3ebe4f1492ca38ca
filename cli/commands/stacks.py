"""Shows where the ranks of a running job are."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import JobStacks, RankStacks, StackProcess
from paceline.cli.completion import JobRef
from paceline.cli.errors import NoStackError
from paceline.cli.render import formats
from paceline.cli.render.output import table
from paceline.cli.session import Session, with_session


@with_session
def stacks(
    session: Session,
    job: JobRef,
    rank: Annotated[str | None, typer.Option(help="only these ranks, e.g. 0 or 0,3")] = None,
    every_thread: Annotated[bool, typer.Option("--all", help="every thread, not only the main one of each process")] = False,
    wait: Annotated[float, typer.Option(min=0, max=25, metavar="SECONDS", help="for the answers of the nodes")] = 10.0,
) -> None:
    """Show where every rank of a running job is: its Python stack, taken now by py-spy, and which rank differs."""
    with session.client() as client:
        document = client.get(f"/training/jobs/{client.job_id(job)}/stacks", rank=rank, wait=wait)
    found = parsed(document, JobStacks)
    session.emit(document, lambda: _stacks_text(found, every_thread=every_thread))
    _require_stacks(found, rank)


def _require_stacks(found: JobStacks, asked: str | None) -> None:
    """Raise NoStackError where a rank that was asked for has no stack; without a choice, where no rank has one."""
    lacking = [each for each in found.ranks if not any(process.threads for process in each.processes)]
    if not found.ranks:
        raise NoStackError(f"no stack: the job has no rank {asked}" if asked else "no stack: the job has no ranks")
    if lacking and (asked is not None or len(lacking) == len(found.ranks)):
        why = lacking[0].error or next((each.error for each in lacking[0].processes if each.error), f"it is {lacking[0].state}")
        raise NoStackError(f"no stack of rank {', '.join(str(each.rank) for each in lacking)}: {why}")


def _stacks_text(found: JobStacks, *, every_thread: bool) -> str:
    overview = table(["RANK", "NODE", "STATE", "CPU", "GPU", "WHERE"], [_row(each) for each in found.ranks], empty="it has no ranks")
    groups: dict[int, list[RankStacks]] = {}
    for each in found.ranks:
        groups.setdefault(each.rank if every_thread else each.same_as, []).append(each)
    return "\n\n".join([found.summary, overview, *(_stack(group, every_thread=every_thread) for group in groups.values())])


def _row(each: RankStacks) -> list[str]:
    cpu = formats.UNKNOWN if each.cores is None else f"{each.cores:.0%}"
    gpu = formats.UNKNOWN if each.gpu_percent is None else f"{each.gpu_percent:.0f}%"
    where = f"{each.summary} <- differs" if each.differs else each.summary
    return [str(each.rank), each.node_name, each.state, cpu, gpu, where]


def _stack(group: list[RankStacks], *, every_thread: bool) -> str:
    """The stack of ranks that have the same one, as Python prints a traceback: the innermost frame last."""
    each = group[0]
    others = ", ".join(str(rank.rank) for rank in group[1:])
    heading = f"rank {each.rank} on {each.node_name}{f', and the same in {others}' if others else ''}"
    heading += " (differs from the others)" if each.differs else ""
    if not each.processes:
        return f"{heading}: {each.error or 'no process'}"
    return "\n".join([heading, *(line for process in each.processes for line in _process(process, every_thread=every_thread))])


def _process(process: StackProcess, *, every_thread: bool) -> list[str]:
    lines = [f"  process {process.pid}{f': {process.command}' if process.command else ''}"]
    if process.error:
        return [*lines, f"    {process.error}"]
    shown = process.threads if every_thread else process.threads[:1]
    for thread in shown:
        lines.append(f"    thread {thread.name} (most recent call last):")
        lines += [f'      File "{frame.file}", line {frame.line}, in {frame.function}' for frame in reversed(thread.frames)]
    left = len(process.threads) - len(shown)
    return [*lines, f"    {left} more thread{'s' if left > 1 else ''}: --all"] if left else lines
