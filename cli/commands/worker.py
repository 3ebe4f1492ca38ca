"""Run an agent on this machine."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.session import command
from cli.settings import resolve


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
    arguments = ["--server", resolve(server).url, "--name", name or socket.gethostname()]
    arguments += ["--data", str(data.resolve()), "--checkpoints", str(checkpoints.resolve())]
    for flag, value in (("--token", token), ("--slots", slots), ("--address", address)):
        arguments += [flag, str(value)] if value is not None else []
    for label in labels or []:
        arguments += ["--label", label]
    os.execv(sys.executable, [sys.executable, "-m", "cluster.agent.main", *arguments])
