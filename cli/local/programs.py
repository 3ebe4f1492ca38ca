"""The programs of a local stack: what is wanted, and the command lines of its coordinator and its agents."""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.cli.local.exposure import Exposure, remembered
from paceline.cli.local.layout import Layout
from paceline.cli.local.processes import BackgroundProgram
from paceline.cli.settings import JOIN_TOKEN
from paceline.monitoring.files import make_private, write_durably

COORDINATOR = "coordinator"
#: What SIGTERM leaves an agent of a stack that outlives it: longer than any script may take to save.
TERM_SECONDS = 3660


@dataclass(frozen=True)
class StackPlan:
    """The wanted processes of a local stack: the coordinator's port, the agents, and the machines that may reach them."""

    port: int = 8000
    agents: int = 2
    slots_per_agent: int | None = 1  # with GPUs: so many that are free; None: all of them, or one a CPU
    pass_environment: tuple[str, ...] = ()  # further variables that ranks get, each NAME or NAME,NAME
    exposure: Exposure | None = None  # None: as it is, which at first is to this machine alone
    gpus: str | None = None  # as `paceline worker --gpus` takes it; None: all that CUDA_VISIBLE_DEVICES shows
    ports: str | None = None  # as `paceline worker --ports` takes it; None: any
    checkpoints: Path | None = None  # where jobs save; None: in the data folder
    #: SIGTERM that comes to every process of this machine at once, as Slurm sends it, ends none of the stack: its owner ends it in order.
    outlives_sigterm: bool = False

    @property
    def agent_names(self) -> list[str]:
        return [f"local-{number}" for number in range(1, self.agents + 1)]


def coordinator_program(
    layout: Layout, plan: StackPlan, hosts: Sequence[str], port: int, exposure: Exposure | None, sockets: Sequence[socket.socket]
) -> BackgroundProgram:
    """The coordinator, which is handed the sockets that hold its port, so that no connection takes it while it loads."""
    descriptors = tuple(each.fileno() for each in sockets)
    arguments = ["-m", "paceline.api.serve", "--port", str(port), *(word for host in hosts for word in ("--host", host))]
    arguments += [word for descriptor in descriptors for word in ("--socket", str(descriptor))]
    environment = {"PACELINE_DATA": str(layout.data), "PACELINE_PRINT_LOGIN_LINK": "false"}  # `up` prints one that no log keeps
    if exposure is not None:
        arguments += exposure.arguments
        environment |= exposure.environment(port)
        if exposure.authority:
            make_private(layout.given_authority.parent)
            write_durably(layout.given_authority, exposure.authority.encode(), mode=0o600)
            environment["PACELINE_TLS_CA"] = str(layout.given_authority)
    program = BackgroundProgram(COORDINATOR, arguments, environment, umask=0o077, descriptors=descriptors)
    return _ended_by_its_owner(program, plan, "--ignore-sigterm")


def agent_program(layout: Layout, plan: StackPlan, url: str, name: str, token: str | None) -> BackgroundProgram:
    """An agent that has joined before keeps its credential in its data folder; a new one gets a single-use token."""
    arguments = ["-m", "paceline.cluster.agent.main", "--server", url, "--name", name]
    arguments += ["--data", str(layout.agent(name)), "--checkpoints", str(plan.checkpoints or layout.checkpoints)]
    arguments += ["--slots", str(plan.slots_per_agent)] if plan.slots_per_agent is not None else []
    arguments += ["--gpus", plan.gpus] if plan.gpus is not None else []
    arguments += ["--ports", plan.ports] if plan.ports is not None else []
    arguments += [word for names in plan.pass_environment for word in ("--pass-env", names)]
    exposure = remembered(layout)
    arguments += ["--address", exposure.address] if exposure else []  # gangs over several machines meet there
    program = BackgroundProgram(name, arguments, {} if token is None else {JOIN_TOKEN: token})
    return _ended_by_its_owner(program, plan, "--drain-on-term", str(TERM_SECONDS))


def _ended_by_its_owner(program: BackgroundProgram, plan: StackPlan, *words: str) -> BackgroundProgram:
    """The program, with these words and SIGINT in SIGTERM's place where the stack outlives that."""
    if not plan.outlives_sigterm:
        return program
    return replace(program, arguments=[*program.arguments, *words], ends_on=signal.SIGINT)
