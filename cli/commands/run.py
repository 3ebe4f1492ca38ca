"""Launch a script as torchrun does, without a job spec."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import exits
from paceline.cli.answers import parsed
from paceline.cli.api_types import Job, Node
from paceline.cli.commands.submit import TimeLimit, Workdir, summary
from paceline.cli.ending import ending
from paceline.cli.errors import UsageProblem
from paceline.cli.help import PlainCommand
from paceline.cli.interrupts import interruptible
from paceline.cli.job_facts import warning_lines
from paceline.cli.launch.arguments import Launch, divide, parse
from paceline.cli.render.output import fields, note
from paceline.cli.session import Session, with_session
from paceline.cli.settings import shell_variables, working_directory

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[OPTIONS OF TORCHRUN] SCRIPT [ITS ARGUMENTS]", help="what you type behind torchrun", show_default=False),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="a variable for the ranks; everybody who may see the job can read it; repeatable"),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="of the job; otherwise that of the script")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="submit only; the job goes on without this terminal")]
Private = Annotated[bool, typer.Option("--private", help="run on this machine with a coordinator of its own, also where one is configured")]
SavesOnSigterm = Annotated[
    bool, typer.Option("--saves-on-sigterm", help="it saves at SIGTERM, and goes on from there when it is started again: it can be paused")
]


class LaunchCommand(PlainCommand):
    """The parser of `run`: Paceline's own options may stand among torchrun's; everything from the script on belongs to the script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {spelling: bool(getattr(each, "is_flag", False)) for each in self.get_params(ctx) for spelling in each.opts}
        mine, launcher = divide(args, own)
        return super().parse_args(ctx, [*mine, "--", *launcher])


@dataclass(frozen=True)
class _Request:
    """The typed command line, and its folder."""

    launch: Launch
    name: str | None  # by --name
    folder: Path
    named: dict[str, str]  # by --env
    shell: Mapping[str, str]
    time_limit: str | None
    saves_on_sigterm: bool
    workdir: Path | None  # which is sent along; None: the ranks start in `folder` itself

    def spec(self, ranks_per_node: int, variables: Mapping[str, str]) -> dict[str, Any]:
        from paceline.cli.launch.spec import spec_of

        spec = spec_of(self.launch, ranks_per_node, self.folder, variables)
        if self.saves_on_sigterm:
            spec["script"]["saves_on_sigterm"] = True
        if self.workdir is not None:
            del spec["environment"]["working_directory"]
        own = {"name": self.name, "time_limit": self.time_limit}
        return spec | {key: value for key, value in own.items() if value}


@with_session
def run(
    session: Session,
    words: Words = None,
    name: Name = None,
    env: Env = None,
    detach: Detach = False,
    private: Private = False,
    time_limit: TimeLimit = None,
    saves_on_sigterm: SavesOnSigterm = False,
    workdir: Workdir = None,
) -> None:
    """Launch a script with torchrun's arguments; print its log until it ends. Ctrl-C cancels it.

    It becomes a job of the coordinator that is configured. Where there is none, it runs on this machine, with a coordinator that is there
    for this run only. --nproc-per-node takes a number, gpu, cpu or auto; --max-restarts is 0 unless you give it, as under torchrun.

    Paceline brings the ranks together by itself: --standalone, --rdzv-*, --master-addr and the like are accepted and not needed.
    --workdir . sends a folder along, for nodes that do not share yours: the script's path is then one in that folder.
    Ranks on a coordinator's nodes get the variables of their node; --env adds some. Without a coordinator they get those of this shell.

    Exit codes: 0 completed, 10 failed, 11 cancelled by somebody else, 130 ended with Ctrl-C.
    """
    from paceline.cli.launch.place import coordinator_answers, require_one_call, require_program
    from paceline.cli.launch.spec import named_variables

    shell, folder = shell_variables(), working_directory()
    named = named_variables(env or [], shell)
    request = _Request(parse(words or [], shell), name, folder, named, shell, time_limit, saves_on_sigterm, workdir)
    require_program(request.launch, folder if workdir is None else folder / workdir)
    require_one_call(request.launch, shell)
    with interruptible():
        if private or not coordinator_answers(session):
            _run_privately(session, request, detach)
        else:
            _run_on_coordinator(session, request, detach)


def _run_on_coordinator(session: Session, request: _Request, detach: bool) -> None:
    from paceline.cli.launch.spec import left_behind, slots_for

    launch = request.launch
    note(*launch.notes)
    if launch.log_files:
        note(f"note: {', '.join(launch.log_files)} has no effect: the coordinator keeps the log of each rank: paceline logs JOB --rank 0")
    note(*left_behind(request.shell, request.named))
    with session.client() as client:
        ranks = launch.ranks_per_node
        if isinstance(ranks, str):
            ranks = slots_for(ranks, [parsed(each, Node) for each in client.pages("/cluster/nodes")], launch.fewest_nodes)
        spec = _with_workdir(client, request.spec(ranks, request.named), request)
        if not detach:
            _follow_to_end(session, client, spec, launch, ranks, private=False)
        document = client.create("/training/jobs", spec)
        job = parsed(document, Job)
        note(*warning_lines(job))
        session.emit(document, lambda: fields([*summary(job), ("page", client.job_page(job.id))]))
        session.next_steps(f"paceline logs -f {job.name}", f"paceline cancel {job.name}")


def _run_privately(session: Session, request: _Request, detach: bool) -> None:
    from paceline.cli.launch.place import require_enough_gpus, require_one_machine
    from paceline.cli.launch.spec import names_to_pass, overridden_variables, slots_for
    from paceline.cli.local.local_agents import usable_cards
    from paceline.cli.local.private import private_stack, require_valid
    from paceline.cli.local.stack import login_link

    if detach:
        raise UsageProblem("--detach needs a coordinator that stays, and there is none", "start one with 'paceline up'")
    launch = request.launch
    require_one_machine(launch, request.shell)
    note(*launch.notes)
    wanted, variables = launch.ranks_per_node, overridden_variables(request.shell) | request.named
    require_enough_gpus(wanted, usable_cards(None).cards)
    require_valid(request.spec(1 if isinstance(wanted, str) else wanted, variables))
    with private_stack(None if isinstance(wanted, str) else wanted, names_to_pass(request.shell)) as stack, stack.client() as client:
        nodes = [parsed(each, Node) for each in client.pages("/cluster/nodes")]
        ranks = slots_for(wanted, nodes, 1) if isinstance(wanted, str) else wanted
        # What signs in is for nobody who may read a file of output.
        where = f"{login_link(client)} (signs in once)" if sys.stderr.isatty() else stack.url
        note(f"note: a coordinator of its own, on this machine, until this run ends: {where}")
        spec = _with_workdir(client, request.spec(ranks, variables), request)
        _follow_to_end(session, client, spec, launch, ranks, private=True)


def _with_workdir(client: RestClient, spec: dict[str, Any], request: _Request) -> dict[str, Any]:
    """The spec with the folder of --workdir, which is stored at the coordinator, if one was given."""
    from paceline.cli.code_bundle import with_code

    return spec if request.workdir is None else with_code(client, spec, request.workdir)


def _follow_to_end(session: Session, client: RestClient, spec: dict[str, Any], launch: Launch, ranks: int, *, private: bool) -> None:
    """Follow the job to its end, and exit by how it ended."""
    from paceline.cli.attached import AttachedJob
    from paceline.cli.launch.spec import rank_filter

    attached = AttachedJob(client, ranks=rank_filter(launch, ranks), to_stderr=not session.for_people, private=private)
    undisturbed = attached.run(spec)
    document = attached.document()
    if not session.for_people:
        session.emit(document, str)
    job = parsed(document, Job)
    note(ending(job))
    raise typer.Exit(exits.for_job_state(job.state) if undisturbed else exits.ExitCode.INTERRUPTED)
