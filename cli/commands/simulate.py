"""Simulated nodes for a coordinator: its real protocol, spoken by agents without machines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.errors import CliError
from paceline.cli.interrupts import ignore_from_now_on, interruptible
from paceline.cli.render.output import note
from paceline.cli.session import Session, with_session
from paceline.cli.settings import child_environment

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

#: As simulated nodes name their platform (`cluster.simulation.machines.PLATFORM`).
PLATFORM = "simulated"
#: What a job says that is to run on simulated nodes beside real ones.
ASKS = 'resources: {labels: {simulated: "true"}, tolerations: [simulated]}'
MOST_NODES = 1000
LEAVE_SECONDS = 15.0
TOKEN_SECONDS = 600


@with_session
def simulate(
    session: Session,
    nodes: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="simulated nodes")] = 64,
    slots: Annotated[int, typer.Option(min=1, max=64, help="cards of each node")] = 8,
    speedup: Annotated[float, typer.Option(min=0.1, max=10_000, help="modelled seconds that pass in one of the clock's")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="of everything that is drawn: noise, stragglers, faults, losses")] = 0,
    prefix: Annotated[str, typer.Option(help="of the nodes' names")] = "sim",
    crashes: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="RATE", help="ranks that die, per modelled hour over the whole cluster; default: as published for so many cards"
        ),
    ] = None,
    hangs: Annotated[float | None, typer.Option(min=0, metavar="RATE", help="ranks that hang, likewise")] = None,
    node_deaths: Annotated[float | None, typer.Option(min=0, metavar="RATE", help="nodes that die, likewise")] = None,
    silences: Annotated[float | None, typer.Option(min=0, metavar="RATE", help="nodes that fall silent for a minute, likewise")] = None,
    beside_real_nodes: Annotated[
        bool,
        typer.Option("--beside-real-nodes", help="no taint where real nodes are too: jobs may be placed on both, and do not start then"),
    ] = False,
) -> None:
    """Add simulated nodes to a coordinator, until Ctrl-C: no rank runs, and every loss, reading and fault comes from a model.

    Jobs are submitted, paused, resized and restored as on real nodes. A job asks for a fault by a variable of its spec's environment, such
    as SIMULATED_FAULTS=exception@40,hang@90:3 (crash, exception, out_of_memory, hang or nan; the step; the rank).

    Where the coordinator has real nodes too, the simulated ones are tainted, and only jobs that ask for them are placed there:
    resources: {labels: {simulated: "true"}, tolerations: [simulated]}.
    """
    arguments = ["--server", session.settings.url, "--slots", str(slots), "--speedup", str(speedup), "--seed", str(seed)]
    for name, rate in (("crashes", crashes), ("hangs", hangs), ("node-deaths", node_deaths), ("silences", silences)):
        arguments += [f"--{name}", str(rate)] if rate is not None else []
    with session.client() as client, interruptible():
        present = client.pages("/cluster/nodes")
        real = real_nodes(present)
        if real and not beside_real_nodes:
            arguments.append("--tainted")
            note(*what_taints_mean(real))
        names = free_names(prefix, nodes, {str(node["name"]) for node in present})
        tokens = {name: client.create("/cluster/nodes", {"expires_in_seconds": TOKEN_SECONDS})["token"] for name in names}
        try:
            note(f"{nodes} simulated nodes of {slots} cards join {session.settings.url}; Ctrl-C removes them")
            _run(arguments, tokens)
        finally:
            ignore_from_now_on()
            _remove(client, set(names))


def free_names(prefix: str, number: int, taken: Iterable[str]) -> list[str]:
    """So many names `prefix-001`, `prefix-002`, ..., without those that are taken."""
    used, index = set(taken), 0
    names: list[str] = []
    while len(names) < number:
        index += 1
        if (name := f"{prefix}-{index:03d}") not in used:
            names.append(name)
    return names


def real_nodes(present: list[dict[str, Any]]) -> list[str]:
    """Return the names of the real nodes that jobs may be placed on. `present`: nodes as the coordinator tells of them."""
    return sorted(str(node["name"]) for node in present if node["platform"] != PLATFORM and node["state"] not in ("lost", "gone"))


def what_taints_mean(real: list[str]) -> tuple[str, str]:
    return (
        f"this coordinator has real nodes ({', '.join(real[:3])}{', ...' if len(real) > 3 else ''}): the simulated ones are tainted, since a job on "
        "both would never start",
        f"jobs that are to run on the simulated ones say so: {ASKS}",
    )


def _run(arguments: list[str], tokens: Mapping[str, str]) -> None:
    """Run the simulation until a signal ends us. Raises CliError where it ends by itself."""
    command = [sys.executable, "-m", "paceline.cluster.simulation.main", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=child_environment(), start_new_session=True)
    assert process.stdin is not None  # a pipe
    try:
        process.stdin.write(json.dumps(dict(tokens)).encode() + b"\n")
        process.stdin.flush()
        code = process.wait()
    finally:
        ignore_from_now_on()
        process.stdin.close()
        try:
            process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    if code != 0:
        raise CliError(f"the simulation ended with {code}; its lines above say why")


def _remove(client: RestClient, names: set[str]) -> None:
    for node in client.pages("/cluster/nodes"):
        if node["name"] in names and node["platform"] in (PLATFORM, ""):
            client.delete(f"/cluster/nodes/{node['id']}", force=True)
