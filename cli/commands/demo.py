"""The first five minutes: a stack in the foreground, one job, and nothing left behind, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import exits
from paceline.cli.answers import parsed
from paceline.cli.api_types import Job, Node
from paceline.cli.commands.stack import DATA, Agents, Data, Gpus, Port, Slots
from paceline.cli.ending import ending
from paceline.cli.errors import StackError
from paceline.cli.examples import FIRST_SPEC, first_spec
from paceline.cli.interrupts import ignore_from_now_on, interruptible
from paceline.cli.job_changes import change_job
from paceline.cli.job_facts import seconds_to_first_step
from paceline.cli.render.output import note, print_line
from paceline.cli.session import command

if TYPE_CHECKING:
    from paceline.cli.client import RestClient
    from paceline.cli.local.programs import StackPlan
    from paceline.cli.local.stack import Stack

MOST_RANKS = 32  # of the example: the samples of its batch
PR_SET_PDEATHSIG = 1
LABEL, LABEL_VALUE = "started-by", "demo"
HOLDING_STATES = "queued,starting,running,recovering,resizing,stopping"


@command
def demo(
    file: Annotated[Path | None, typer.Argument(help="job spec to train; default: a small GPT on every slot that is there")] = None,
    port: Port = 8000,
    agents: Agents = None,
    slots_per_agent: Slots = None,
    gpus: Gpus = None,
    data: Data = DATA,
    die_with_parent: Annotated[bool, typer.Option("--die-with-parent", hidden=True)] = False,
) -> None:
    """Start a stack, train a small GPT on it, and watch it. The stack stays up until Ctrl-C."""
    from paceline.cli.local.local_agents import local_agents
    from paceline.cli.local.programs import StackPlan

    if die_with_parent:
        _end_with_parent()
    spec = spec_of(file)
    shape = local_agents(agents, slots_per_agent, gpus)
    note(*shape.notes)
    with interruptible(), _demo_stack(data, StackPlan(port, shape.agents, shape.slots_per_agent, gpus=gpus)) as (stack, is_ours):
        job = _train(stack, spec, everywhere=file is None)
        if not is_ours:
            note("The stack stays up. To stop it: " + shlex.join(["paceline", "down", "--data", str(stack.layout.data)]))
        elif sys.stdout.isatty() or sys.stdin.isatty():
            _look_around(stack)
    raise typer.Exit(exits.for_job_state(job.state))


def spec_of(file: Path | None) -> dict[str, Any]:
    """The job spec in `file`, or the example that Paceline comes with, labelled as a demo's. Raises UsageProblem."""
    from paceline.cli.documents import read_spec

    spec = read_spec(str(file or first_spec() or FIRST_SPEC), [])
    return {**spec, "labels": {**(spec.get("labels") or {}), LABEL: LABEL_VALUE}}


def _train(stack: Stack, spec: dict[str, Any], *, everywhere: bool) -> Job:
    from paceline.cli.live import watch
    from paceline.cli.local.stack import login_link

    with stack.client() as client:
        if stack.started:
            _cancel_leftovers(client)
        if everywhere:
            spec["resources"] = everything([parsed(each, Node) for each in client.pages("/cluster/nodes")])
        print_line(f"dashboard: {login_link(client)}  (signs in once)")
        job = parsed(client.create("/training/jobs", spec), Job)
        job = watch(client, job.id)
        print_line(ending(job))
        seconds = seconds_to_first_step(job)
        if seconds is not None:
            print_line(f"submission to first committed step: {seconds:.2f} s")
    return job


def everything(nodes: Sequence[Node]) -> dict[str, int]:
    """The `resources` of a gang on all ready nodes of one kind, those with GPUs if there are any: as many slots on each as the smallest
    has."""
    ready = [node for node in nodes if node.state == "ready" and node.slots]
    chosen = [node for node in ready if node.device == "cuda"] or ready
    if not chosen:
        return {"nodes": 1, "slots_per_node": 1}  # it waits for a node
    slots = min(MOST_RANKS, *(len(node.slots) for node in chosen))
    return {"nodes": min(len(chosen), MOST_RANKS // slots), "slots_per_node": slots}


def _cancel_leftovers(client: RestClient) -> None:
    """Cancel the job of an interrupted demo: it would keep the new one waiting for its slots."""
    for document in client.pages("/training/jobs", None, **{"status": HOLDING_STATES, f"label.{LABEL}": LABEL_VALUE}):
        note(f"cancelling {document['name']}, which an earlier demo left unfinished")
        change_job(client, document["id"], "cancel")


def _look_around(stack: Stack) -> None:
    """Wait until Ctrl-C, which is now the ordinary end. The login link is a new one: the first may have been used."""
    from paceline.cli.local.stack import login_link

    with stack.client() as client:
        link = login_link(client)
    with contextlib.suppress(KeyboardInterrupt):
        note("", f"The stack stays up: {link}  (signs in once)", "Press Ctrl-C to stop everything.")
        threading.Event().wait()


@contextlib.contextmanager
def _demo_stack(data: Path, plan: StackPlan) -> Iterator[tuple[Stack, bool]]:
    """A stack, and whether it is the demo's own, which ends with this process. One that is up already is used, and left up."""
    from paceline.cli.local.layout import Layout
    from paceline.cli.local.stack import bring_up, is_up
    from paceline.cli.local.watchdog import StackWatchdog

    layout = Layout.at(data)
    if is_up(layout):
        note(f"using the stack that is up in {layout.data}")
        yield bring_up(layout, plan, note), False
        return
    watchdog = StackWatchdog(layout)
    try:
        yield bring_up(layout, plan, note), True
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
