"""Run an agent on this machine."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.local.torch_here import require_torch
from paceline.cli.output import note
from paceline.cli.session import command
from paceline.cli.settings import JOIN_TOKEN, child_environment, resolve

#: The folders of an agent that is told of none. Agents of one machine share the checkpoints.
DATA, CHECKPOINTS = Path(".paceline/agent"), Path(".paceline/checkpoints")
CHECKPOINTS_HELP = (
    "where jobs save, e.g. a folder that nodes share; default: .paceline/checkpoints, or checkpoints in --data where that is given"
)
PASS_ENV_HELP = "variables of this shell that ranks get besides PATH, HOME, CUDA_*, NCCL_*, proxies and the like; repeatable"

GPUS_HELP = "GPUs to offer: indices as in nvidia-smi (0,2), UUIDs, all or none; default: all that CUDA_VISIBLE_DEVICES shows"


@command
def worker(
    server: Annotated[str | None, typer.Option(help="coordinator's URL; default: as for the other commands")] = None,
    token: Annotated[str | None, typer.Option(help="single-use join token; needed the first time only")] = None,
    name: Annotated[str | None, typer.Option(help="of this node; default: the host name")] = None,
    gpus: Annotated[str | None, typer.Option(metavar="LIST", help=GPUS_HELP)] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="CPU slots (default: one a CPU), or at most so many free GPUs")] = None,
    address: Annotated[str | None, typer.Option(help="where other nodes reach this one")] = None,
    data: Annotated[Path, typer.Option(help="spools, the node's credential, and checkpoints")] = DATA,
    checkpoints: Annotated[Path | None, typer.Option(help=CHECKPOINTS_HELP)] = None,
    port_range: Annotated[str | None, typer.Option(metavar="A-B", help="ports for gangs to meet on; default: any free ones")] = None,
    output_cap: Annotated[str | None, typer.Option(metavar="SIZE", help="of one rank's output on disk; default: 256MiB")] = None,
    quiet_seconds: Annotated[
        float | None, typer.Option(min=1, metavar="SECONDS", help="how long a script may say nothing before it is looked at; default: 300")
    ] = None,
    run_as: Annotated[str | None, typer.Option(metavar="USER", help="run ranks as this user; needs root")] = None,
    memory_limit: Annotated[str | None, typer.Option(metavar="SIZE", help="of one rank, e.g. 16GiB; needs cgroup v2")] = None,
    pass_env: Annotated[list[str] | None, typer.Option("--pass-env", metavar="NAME[,NAME]", help=PASS_ENV_HELP)] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="jobs ask for it: resources.labels; repeatable")
    ] = None,
    taints: Annotated[
        list[str] | None, typer.Option("--taint", metavar="K[=V]", help="keeps jobs off that do not tolerate it; repeatable")
    ] = None,
) -> None:
    """Run this machine's agent in the foreground; it dials out to the coordinator."""
    require_torch("an agent")
    settings = resolve(server)
    note(*settings.warnings)
    saves_in = checkpoints or (CHECKPOINTS if data == DATA else None)
    arguments = ["--server", settings.url, "--name", name or _host_name(), "--data", str(data.resolve())]
    for flag, value in (
        ("--checkpoints", saves_in.resolve() if saves_in else None),
        ("--gpus", gpus),
        ("--slots", slots),
        ("--address", address),
        ("--port-range", port_range),
        ("--output-cap", output_cap),
        ("--quiet-seconds", quiet_seconds),
        ("--run-as", run_as),
        ("--memory-limit", memory_limit),
    ):
        arguments += [flag, str(value)] if value is not None else []
    for flag, values in (("--label", labels), ("--taint", taints), ("--pass-env", pass_env)):
        arguments += [word for value in values or [] for word in (flag, value)]
    environment = child_environment(**({JOIN_TOKEN: token} if token else {}))
    os.execve(sys.executable, [sys.executable, "-m", "paceline.cluster.agent.main", *arguments], environment)


def _host_name() -> str:
    """The name of this machine, spelled as node names are."""
    return re.sub(r"[^a-z0-9._-]", "-", socket.gethostname().lower()).strip("._-") or "node"
