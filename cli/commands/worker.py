"""Run an agent on this machine."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.session import command
from cli.settings import JOIN_TOKEN, child_environment, resolve


@command
def worker(
    server: Annotated[str | None, typer.Option(help="coordinator's URL; default: as for the other commands")] = None,
    token: Annotated[str | None, typer.Option(help="single-use join token; needed the first time only")] = None,
    name: Annotated[str | None, typer.Option(help="of this node; default: the host name")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="default: one a GPU, else one a CPU")] = None,
    address: Annotated[str | None, typer.Option(help="where other nodes reach this one")] = None,
    data: Annotated[Path, typer.Option(help="spools and the node's credential")] = Path(".paceline/agent"),
    checkpoints: Annotated[Path, typer.Option(help="default place for checkpoints")] = Path(".paceline/checkpoints"),
    labels: Annotated[list[str] | None, typer.Option("--label", metavar="K=V", help="repeatable")] = None,
) -> None:
    """Run this machine's agent in the foreground; it dials out to the coordinator."""
    arguments = ["--server", resolve(server).url, "--name", name or _host_name()]
    arguments += ["--data", str(data.resolve()), "--checkpoints", str(checkpoints.resolve())]
    for flag, value in (("--slots", slots), ("--address", address)):
        arguments += [flag, str(value)] if value is not None else []
    for label in labels or []:
        arguments += ["--label", label]
    environment = child_environment(**({JOIN_TOKEN: token} if token else {}))
    os.execve(sys.executable, [sys.executable, "-m", "cluster.agent.main", *arguments], environment)


def _host_name() -> str:
    """This machine's name, spelled as node names are."""
    return re.sub(r"[^a-z0-9._-]", "-", socket.gethostname().lower()).strip("._-") or "node"
