"""The first five minutes: a stack in the foreground, one job, and nothing left behind, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import exits
from cli.commands.jobs import change_job
from cli.commands.stack import Agents, Data, Port, Slots
from cli.commands.submit import ending
from cli.errors import StackError
from cli.interrupts import ignore_from_now_on, interruptible
from cli.output import note, say
from cli.session import command

if TYPE_CHECKING:
    from cli.client import Client
    from cli.local.stack import Plan, Stack
    from cli.views import Job

EXAMPLE = Path("examples/gpt_stdlib.yaml")
PR_SET_PDEATHSIG = 1
LABEL, LABEL_VALUE = "started-by", "demo"
HOLDING_STATES = "queued,starting,running,recovering,resizing,stopping"


@command
def demo(
    file: Annotated[Path, typer.Argument(help="job spec to train")] = EXAMPLE,
    port: Port = 8000,
    agents: Agents = 2,
    slots_per_agent: Slots = 1,
    data: Data = Path(".paceline"),
    die_with_parent: Annotated[bool, typer.Option("--die-with-parent", hidden=True)] = False,
) -> None:
    """Start a stack, train a small GPT on it, watch it; Ctrl-C stops everything."""
    from cli.local.stack import Plan

    if die_with_parent:
        _end_with_parent()
    with interruptible(), _owned_stack(data, Plan(port, agents, slots_per_agent)) as stack:
        job = _train(stack, file)
        if sys.stdout.isatty():
            _look_around()
    raise typer.Exit(exits.for_job_state(job.state))


def _train(stack: Stack, file: Path) -> Job:
    from cli.documents import read_spec
    from cli.live import watch
    from cli.local.stack import login_link
    from cli.views import Job, view

    spec = read_spec(str(file), [])
    spec["labels"] = {**(spec.get("labels") or {}), LABEL: LABEL_VALUE}
    with stack.client() as client:
        if stack.started:
            _cancel_leftovers(client)
        say(f"dashboard: {login_link(client)}  (signs in once)")
        job = view(client.create("/training/jobs", spec), Job)
        job = watch(client, job.id)
        say(ending(job))
        if job.seconds_to_first_step is not None:
            say(f"submission to first committed step: {job.seconds_to_first_step:.2f} s")
    return job


def _cancel_leftovers(client: Client) -> None:
    """The job of a demo that was interrupted still wants to run, and would keep this one waiting for its slots."""
    for document in client.pages("/training/jobs", None, **{"status": HOLDING_STATES, f"label.{LABEL}": LABEL_VALUE}):
        note(f"cancelling {document['name']}, which an earlier demo left unfinished")
        change_job(client, document["id"], "cancel")


def _look_around() -> None:
    """Until Ctrl-C, which is now the ordinary end."""
    note("", "still up for looking around; Ctrl-C stops everything")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


@contextlib.contextmanager
def _owned_stack(data: Path, plan: Plan) -> Iterator[Stack]:
    """A stack that ends with this process. One that is up already is used, and left up."""
    from cli.local.layout import Layout
    from cli.local.stack import bring_up, is_up
    from cli.local.watchdog import Watchdog

    layout = Layout.at(data)
    if is_up(layout):
        note(f"using the stack that is up in {layout.data}; it stays up")
        yield bring_up(layout, plan, note)
        return
    watchdog = Watchdog(layout)
    try:
        yield bring_up(layout, plan, note)
    finally:
        ignore_from_now_on()
        note("stopping everything")
        watchdog.release()


def _end_with_parent() -> None:
    """Ask Linux for SIGTERM when the parent (make, a script) dies; elsewhere a Ctrl-C has to do."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise StackError(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        raise StackError("the parent process ended before the demo began")
