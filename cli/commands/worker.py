"""Run an agent on this machine."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.local.torch_here import require_torch
from paceline.cli.render.output import note
from paceline.cli.session import command
from paceline.cli.settings import JOIN_TOKEN, child_environment, resolve

#: The folders of an agent that is told of none. Agents of one machine share the checkpoints.
DATA, CHECKPOINTS = Path(".paceline/agent"), Path(".paceline/checkpoints")
CHECKPOINTS_HELP = (
    "where jobs save, e.g. a folder that nodes share; default: .paceline/checkpoints, or checkpoints in --data where that is given"
)
PASS_ENV_HELP = "variables of this shell that ranks get besides PATH, HOME, CUDA_*, NCCL_*, proxies and the like; repeatable"

GPUS_HELP = "GPUs to offer: indices as in nvidia-smi (0,2), UUIDs, all or none; default: all that CUDA_VISIBLE_DEVICES shows"

LABEL_HELP = "jobs ask for it: resources.labels; repeatable"
PORTS_HELP = "ports for gangs to meet on; default: any free ones"
SPOOL_KEPT_HELP = "of one rank's points and events that the coordinator has; default: 256MiB of each"
QUIET_HELP = "how long a script may say nothing before it is looked at; default: 300"
ORPHAN_HELP = "how long ranks run on without their agent before they are ended; default: 900"
ENDS_IN_HELP = "this machine is taken away after so long; jobs are moved away before"
DRAIN_HELP = "how long before its end jobs are moved away, and what SIGUSR1 leaves; default: 120"
DRAIN_ON_TERM_HELP = "SIGTERM leaves so long to move jobs away; default: it ends them at once"
NOTICE_COMMAND_HELP = "asked each 5 s; exit code 0 says that this machine is taken away, a number that it prints, in how many seconds"
NOTICE_FILE_HELP = "once it is there this machine is taken away; a number in it says in how many seconds"


@command
def worker(
    server: Annotated[str | None, typer.Option(help="coordinator's URL; default: as for the other commands")] = None,
    token: Annotated[str | None, typer.Option(help="single-use join token; needed the first time only")] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="the token in a file, e.g. a mounted secret", dir_okay=False)
    ] = None,
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="authority (PEM) to believe, instead of that of the token")] = None,
    insecure_http: Annotated[
        bool,
        typer.Option("--insecure-http", help="plain http to another machine: keys and code travel readable; for networks that you trust"),
    ] = False,
    name: Annotated[str | None, typer.Option(help="of this node; default: the host name")] = None,
    gpus: Annotated[str | None, typer.Option(metavar="LIST", help=GPUS_HELP)] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="CPU slots (default: one a CPU), or at most so many free GPUs")] = None,
    address: Annotated[str | None, typer.Option(help="where other nodes reach this one")] = None,
    data: Annotated[Path, typer.Option(help="spools, the node's credential, and checkpoints")] = DATA,
    checkpoints: Annotated[Path | None, typer.Option(help=CHECKPOINTS_HELP)] = None,
    port_range: Annotated[str | None, typer.Option("--port-range", "--ports", metavar="A-B", help=PORTS_HELP)] = None,
    output_cap: Annotated[str | None, typer.Option(metavar="SIZE", help="of one rank's output on disk; default: 256MiB")] = None,
    spool_kept: Annotated[str | None, typer.Option(metavar="SIZE", help=SPOOL_KEPT_HELP)] = None,
    quiet_seconds: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help=QUIET_HELP)] = None,
    orphan_seconds: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help=ORPHAN_HELP)] = None,
    run_as: Annotated[str | None, typer.Option(metavar="USER", help="run ranks as this user; needs root")] = None,
    memory_limit: Annotated[str | None, typer.Option(metavar="SIZE", help="of one rank, e.g. 16GiB; needs cgroup v2")] = None,
    ends_in: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help=ENDS_IN_HELP)] = None,
    drain_seconds: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help=DRAIN_HELP)] = None,
    drain_on_term: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help=DRAIN_ON_TERM_HELP)] = None,
    notice_command: Annotated[str | None, typer.Option(metavar="COMMAND", help=NOTICE_COMMAND_HELP)] = None,
    notice_file: Annotated[Path | None, typer.Option(metavar="FILE", help=NOTICE_FILE_HELP)] = None,
    returns: Annotated[bool, typer.Option("--returns", help="after a notice the node is kept: it comes back with the same --data")] = False,
    pass_env: Annotated[list[str] | None, typer.Option("--pass-env", metavar="NAME[,PREFIX*]", help=PASS_ENV_HELP)] = None,
    labels: Annotated[list[str] | None, typer.Option("--label", metavar="K=V", help=LABEL_HELP)] = None,
    taints: Annotated[
        list[str] | None, typer.Option("--taint", metavar="K[=V]", help="keeps jobs off that do not tolerate it; repeatable")
    ] = None,
) -> None:
    """Run this machine's agent in the foreground; it dials out to the coordinator."""
    require_torch("an agent")
    settings = resolve(server)
    note(*settings.warnings)
    saves_in = checkpoints or (CHECKPOINTS if data == DATA else None)
    node = {"--server": settings.url, "--name": name or _host_name(), "--data": data.resolve(), "--token-file": token_file, "--ca": ca}
    offer = {"--gpus": gpus, "--slots": slots, "--address": address, "--port-range": port_range, "--checkpoints": _full(saves_in)}
    ranks = {"--quiet-seconds": quiet_seconds, "--orphan-seconds": orphan_seconds, "--run-as": run_as, "--memory-limit": memory_limit}
    disk = {"--output-cap": output_cap, "--spool-kept": spool_kept}
    ends = {"--ends-in": ends_in, "--drain-seconds": drain_seconds, "--drain-on-term": drain_on_term}
    notices = {"--notice-command": notice_command, "--notice-file": _full(notice_file)}
    lists = {"--label": labels, "--taint": taints, "--pass-env": pass_env}
    options = {**node, **offer, **ranks, **disk, **ends, **notices}
    _become_agent(options, lists, {"--insecure-http": insecure_http, "--returns": returns}, token)


def _become_agent(
    options: Mapping[str, object], lists: Mapping[str, list[str] | None], switches: Mapping[str, bool], token: str | None
) -> None:
    """Run the agent in place of this process, with the options that have a value. The token is in its environment, which `ps` does not show."""
    arguments = [word for flag, value in options.items() if value is not None for word in (flag, str(value))]
    arguments += [word for flag, values in lists.items() for value in values or [] for word in (flag, value)]
    arguments += [flag for flag, is_on in switches.items() if is_on]
    environment = child_environment(**({JOIN_TOKEN: token} if token else {}))
    os.execve(sys.executable, [sys.executable, "-m", "paceline.cluster.agent.main", *arguments], environment)


def _full(path: Path | None) -> Path | None:
    return path and path.resolve()


def _host_name() -> str:
    """The name of this machine, spelled as node names are."""
    return re.sub(r"[^a-z0-9._-]", "-", socket.gethostname().lower()).strip("._-") or "node"
