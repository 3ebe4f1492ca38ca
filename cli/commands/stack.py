"""Start and stop a coordinator with agents on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.cli.commands.worker import GPUS_HELP
from paceline.cli.examples import first_spec
from paceline.cli.render.output import Format, emit, fields, note
from paceline.cli.session import Json, command
from paceline.cli.settings import PROJECT_FOLDER, ClientSettings, in_slurm_job, is_stored

Port = Annotated[int, typer.Option(min=1, max=65535, help="of the coordinator; when it is used, the next free one is taken")]
Agents = Annotated[int | None, typer.Option(min=0, max=64, help="local agents to start; default: one where there are GPUs, else two")]
Slots = Annotated[
    int | None,
    typer.Option(min=1, max=64, help="of each local agent; default: where there are GPUs an equal share of them, else one CPU slot"),
]
Gpus = Annotated[str | None, typer.Option(metavar="LIST", help=GPUS_HELP)]
DATA = Path(PROJECT_FOLDER)
DATA_HELP = "folder for all state; it survives; default: that of PACELINE_DATA, else .paceline"
#: The coordinator's own variable, which `uvicorn` and the service go by too.
Data = Annotated[Path, typer.Option(envvar="PACELINE_DATA", help=DATA_HELP, show_envvar=False, show_default=False)]

Checkpoints = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="where jobs on the local agents save, e.g. a folder that nodes share; default: checkpoints in --data"),
]
PassEnv = Annotated[
    list[str] | None,
    typer.Option("--pass-env", metavar="NAME[,PREFIX*]", help="further variables of this shell that ranks get; repeatable"),
]
Host = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="name or IPv4 address of this machine, under which other machines are to reach it; 0.0.0.0: every address"
    ),
]
Tls = Annotated[
    str | None,
    typer.Option(
        metavar="self-signed|CERT KEY",
        help="TLS for other machines: with an authority of its own, whose fingerprint join tokens carry, or with a certificate (PEM)",
    ),
]
TlsKey = Annotated[Path | None, typer.Argument(metavar="[KEY]", help="key of the certificate of --tls", show_default=False)]
Ports = Annotated[str | None, typer.Option(metavar="A-B", help="ports for gangs to meet on; default: any free ones")]
PublicUrl = Annotated[str | None, typer.Option(metavar="URL", help="https address of the TLS proxy here that forwards to --port")]
Insecure = Annotated[
    bool, typer.Option("--insecure-public", help="answer other machines over plain http: keys travel readable; for networks that you trust")
]
Pools = Annotated[Path | None, typer.Option(metavar="FILE", help="create the pools of this file, or replace those of their names")]


@command
def up(
    tls_key: TlsKey = None,
    port: Port = 8000,
    agents: Agents = None,
    slots_per_agent: Slots = None,
    gpus: Gpus = None,
    data: Data = DATA,
    checkpoints: Checkpoints = None,
    pass_env: PassEnv = None,
    host: Host = None,
    tls: Tls = None,
    public_url: PublicUrl = None,
    ports: Ports = None,
    insecure_public: Insecure = False,
    pools: Pools = None,
    json: Json = False,
) -> None:
    """Start a coordinator and local agents in the background; print a login link."""
    from paceline.cli.commands.pools import apply_pools, pools_of
    from paceline.cli.local.exposure import requested_exposure
    from paceline.cli.local.layout import Layout
    from paceline.cli.local.local_agents import local_agents
    from paceline.cli.local.programs import StackPlan
    from paceline.cli.local.stack import bring_up, join_command, login_link

    exposure = requested_exposure(host, public_url, insecure_public, tls, tls_key)
    wanted = pools_of(pools) if pools else []
    shape = local_agents(agents, slots_per_agent, gpus)
    note(*shape.notes)
    saves_in = checkpoints.expanduser().resolve() if checkpoints else None
    plan = StackPlan(
        port, shape.agents, shape.slots_per_agent, tuple(pass_env or ()), exposure, gpus, ports, saves_in, outlives_sigterm=in_slurm_job()
    )
    stack = bring_up(Layout.at(data), plan, note)
    with stack.client() as client:
        apply_pools(client, wanted)
        link = login_link(client)
        join = join_command(client) if stack.exposure else ""
    if not stack.started:
        note("it is up already")
    document: dict[str, Any] = {"server": stack.url, "login_link": link, "started": list(stack.started), "data": str(stack.layout.data)}
    pairs = [("server", stack.url), ("login", f"{link} (works once)"), ("data", str(stack.layout.data))]
    if stack.exposure is not None:
        document |= {"public_url": stack.exposure.public_url(stack.port), "join_command": join, "ca_fingerprint": stack.fingerprint}
        pairs += [("open", stack.exposure.description(stack.port)), ("on another machine", f"{join} (works once, for an hour)")]
        pairs += [("authority", f"{stack.fingerprint} (what 'paceline login' shows elsewhere)")] if stack.fingerprint else []
    emit(document, Format.JSON if json else Format.TABLE, lambda: fields(pairs))
    if not json:
        note(*_next_steps(data, stack.settings))


def _next_steps(data: Path, settings: ClientSettings) -> list[str]:
    """The commands that come next. A stack in .paceline is found from its folder and those below it; from all others it has to be stored
    once."""
    lines = []
    if not is_stored(settings.url, settings.key):
        where = "from other folders" if data == DATA else "from any folder"
        lines.append(f"to use it {where} too: paceline login --data {shlex.quote(str(data.expanduser().resolve()))}")
    if data == DATA:
        spec = first_spec()
        return [*lines, *([f"next: paceline submit {shlex.quote(spec)} --follow"] if spec else []), "next: paceline down"]
    return [*lines, f"next: paceline down --data {shlex.quote(str(data))}"]


@command
def down(data: Data = DATA, json: Json = False) -> None:
    """Stop what 'up' started, agents and their ranks first; data stays."""
    from paceline.cli.local.layout import Layout
    from paceline.cli.local.stack import take_down

    count = take_down(Layout.at(data), note)
    text = f"stopped {count} {'process' if count == 1 else 'processes'}" if count else "nothing was running"
    emit({"stopped": count}, Format.JSON if json else Format.TABLE, lambda: text)
