"""Launch a script as torchrun does, without a job spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from cli import exits
from cli.commands.submit import ending, summary
from cli.errors import UsageProblem
from cli.interrupts import interruptible
from cli.launch_arguments import Launch, divide, parse
from cli.output import fields, note
from cli.session import Session, with_session
from cli.settings import shell_variables, working_directory

if TYPE_CHECKING:
    from cli.client import Client

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[OPTIONS OF TORCHRUN] SCRIPT [ITS ARGUMENTS]", help="what you type behind torchrun", show_default=False),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="a variable for the ranks; everybody who may see the job can read it; repeatable"),
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="submit only; the job goes on without this terminal")]
Private = Annotated[bool, typer.Option("--private", help="run on this machine with a coordinator of its own, also where one is configured")]


class LaunchCommand(TyperCommand):
    """Paceline's own options may stand among torchrun's; everything from the script on belongs to the script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {spelling: bool(getattr(each, "is_flag", False)) for each in self.get_params(ctx) for spelling in each.opts}
        mine, launcher = divide(args, own)
        return super().parse_args(ctx, [*mine, "--", *launcher])


@dataclass(frozen=True)
class _Request:
    """What was typed, and where."""

    launch: Launch
    folder: Path
    named: dict[str, str]  # by --env
    shell: Mapping[str, str]


@with_session
def run(session: Session, words: Words = None, env: Env = None, detach: Detach = False, private: Private = False) -> None:
    """Launch a script with torchrun's arguments; print its log until it ends. Ctrl-C cancels it.

    paceline run --nproc-per-node 2 train.py --lr 0.1

    paceline run --nnodes 2 --nproc-per-node 8 -m my_project.train --epochs 3

    paceline run --no-python --nproc-per-node 2 ./train.sh

    It becomes a job of the coordinator that is configured. Where there is none, it runs on this machine, with a coordinator that is there
    for this run only. --nproc-per-node takes a number, gpu, cpu or auto; --max-restarts is 0 unless you give it, as under torchrun.

    Paceline brings the ranks together by itself: --standalone, --rdzv-*, --master-addr and the like are accepted and not needed.
    Ranks on a coordinator's nodes get the variables of their node; --env adds some. Without a coordinator they get those of this shell.

    Exit codes: 0 completed, 10 failed, 11 cancelled by somebody else, 130 ended with Ctrl-C.
    """
    from cli.launch_place import coordinator_answers, require_one_call, require_program
    from cli.launch_spec import named_variables

    shell, folder = shell_variables(), working_directory()
    request = _Request(parse(words or [], shell), folder, named_variables(env or [], shell), shell)
    require_program(request.launch, folder)
    require_one_call(request.launch, shell)
    with interruptible():
        if private or not coordinator_answers(session):
            _run_privately(session, request, detach)
        else:
            _run_on_coordinator(session, request, detach)


def _run_on_coordinator(session: Session, request: _Request, detach: bool) -> None:
    from cli.launch_spec import left_behind, slots_for, spec_of
    from cli.views import Job, Node, view

    launch = request.launch
    note(*launch.notes)
    if launch.log_files:
        note(f"note: {', '.join(launch.log_files)} has no effect: the coordinator keeps the log of each rank: paceline logs JOB --rank 0")
    note(left_behind(request.shell, request.named))
    with session.client() as client:
        ranks = launch.ranks_per_node
        if isinstance(ranks, str):
            ranks = slots_for(ranks, [view(each, Node) for each in client.pages("/cluster/nodes")], launch.nodes)
        spec = spec_of(launch, ranks, request.folder, request.named)
        if not detach:
            _attend(session, client, spec, launch, ranks, private=False)
        document = client.create("/training/jobs", spec)
        job = view(document, Job)
        session.emit(document, lambda: fields(summary(job)))
        session.next_steps(f"paceline logs -f {job.name}", f"paceline cancel {job.name}")


def _run_privately(session: Session, request: _Request, detach: bool) -> None:
    from cli.launch_place import require_free_choice_of_gpus, require_one_machine
    from cli.launch_spec import names_to_pass, overridden_variables, slots_for, spec_of
    from cli.local.private import private_stack
    from cli.local.stack import login_link
    from cli.views import Node, view

    if detach:
        raise UsageProblem("--detach needs a coordinator that stays, and there is none", "start one with 'paceline up'")
    launch = request.launch
    require_one_machine(launch, request.shell)
    note(*launch.notes)
    wanted = launch.ranks_per_node
    with private_stack(None if isinstance(wanted, str) else wanted, names_to_pass(request.shell)) as stack, stack.client() as client:
        nodes = [view(each, Node) for each in client.pages("/cluster/nodes")]
        ranks = slots_for(wanted, nodes, 1) if isinstance(wanted, str) else wanted
        require_free_choice_of_gpus(nodes[0], ranks, request.shell)
        note(f"note: a coordinator of its own, on this machine, until this run ends: {login_link(client)} (signs in once)")
        variables = overridden_variables(request.shell) | request.named
        _attend(session, client, spec_of(launch, ranks, request.folder, variables), launch, ranks, private=True)


def _attend(session: Session, client: Client, spec: dict[str, Any], launch: Launch, ranks: int, *, private: bool) -> None:
    """Follow the job to its end, and exit by how it ended."""
    from cli.attached import AttachedJob
    from cli.launch_spec import rank_filter
    from cli.views import Job, view

    attached = AttachedJob(client, ranks=rank_filter(launch, ranks), to_stderr=not session.for_people, private=private)
    undisturbed = attached.run(spec)
    document = attached.document()
    if not session.for_people:
        session.emit(document, str)
    job = view(document, Job)
    note(ending(job))
    raise typer.Exit(exits.for_job_state(job.state) if undisturbed else exits.ExitCode.INTERRUPTED)
