"""Commands for pools of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import NodePool
from paceline.cli.errors import ApiProblemError, UsageProblem
from paceline.cli.help import CommandGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import table
from paceline.cli.session import Session, with_session

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

app = CommandGroup(invoke_without_command=True)
PoolFile = Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON with a list `pools`", show_default=False)]


@app.callback()
@with_session
def pools(session: Session, context: typer.Context) -> None:
    """List, create, change and delete pools of nodes. Without a command: list them."""
    if context.invoked_subcommand is None:
        _list(session)


@app.command("list")
@with_session
def list_pools(session: Session) -> None:
    """List pools, and how many nodes each has."""
    _list(session)


@app.command()
@with_session
def apply(session: Session, file: PoolFile) -> None:
    """Create the pools of a file, or replace those that have their names; other pools stay."""
    wanted = pools_of(file)
    with session.client() as client:
        documents = apply_pools(client, wanted)
    session.emit(documents, lambda: _table([parsed(each, NodePool) for each in documents]))


@app.command()
@with_session
def delete(
    session: Session,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="its name", show_default=False)],
    drain: Annotated[bool, typer.Option("--drain", help="its nodes too: they are drained, then ended")] = False,
    yes: Yes = False,
) -> None:
    """Delete a pool that has no nodes, or with --drain its nodes as well. At a terminal it asks first."""
    with session.client() as client:
        path = client.pool_path(pool)
        if not yes:
            confirm(f"The pool {pool} will be deleted{', and its nodes drained and ended' if drain else ''}.", "Delete?")
        client.delete(path, drain=drain)
    session.emit({"deleted": pool}, lambda: f"{pool} is deleted")


def pools_of(file: Path) -> list[dict[str, Any]]:
    """The pools of a file. Raises UsageProblem where it has none."""
    from paceline.cli.documents import read_spec

    found = read_spec(str(file), []).get("pools")
    if not isinstance(found, list) or not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in found):
        raise UsageProblem(
            f"{file} has no list of pools", "write 'pools:', then '- name: lab' and 'provider: {type: ssh, hosts: [ada@gpu1]}'"
        )
    names = [each["name"] for each in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageProblem(f"{file} has the pool {twice[0]} twice", "give each pool a name of its own")
    return found


def apply_pools(client: RestClient, wanted: list[dict[str, Any]]) -> list[Any]:
    """Send pools to the coordinator, and return them as it has them now. Raises ApiProblemError that names the pool."""
    return [_apply_pool(client, each) for each in wanted]


def _apply_pool(client: RestClient, wanted: dict[str, Any]) -> Any:
    try:
        return client.put(f"/cluster/pools/{wanted['name']}", body=wanted)
    except ApiProblemError as error:
        raise error.about(f"pool {wanted['name']}") from None


def _list(session: Session) -> None:
    with session.client() as client:
        documents = client.pages("/cluster/pools")
    session.emit(documents, lambda: _table([parsed(each, NodePool) for each in documents]))


def _table(found: list[NodePool]) -> str:
    rows = [
        [
            each.name,
            str(each.provider.get("type", formats.UNKNOWN)),
            f"{each.nodes} of {each.min_nodes}-{each.max_nodes}",
            str(each.coming),
            " ".join(f"{key}={value}" for key, value in sorted(each.labels.items())) or formats.UNKNOWN,
            "yes" if each.spot else "no",
            "no" if each.autoscale is None else "yes",
            _hours(each),
        ]
        for each in found
    ]
    listed = table(
        ["NAME", "PROVIDER", "NODES", "COMING", "LABELS", "SPOT", "AUTOSCALED", "NODE-HOURS THIS MONTH"],
        rows,
        empty="no pools; 'paceline pools apply FILE' makes them",
    )
    unreadable = [f"{each.name} is left as it is, this version cannot read it: {each.unreadable}" for each in found if each.unreadable]
    return "\n".join([listed, *unreadable, *(line for each in found for line in _withheld(each))])


def _hours(pool: NodePool) -> str:
    budget = pool.autoscale.budget_node_hours if pool.autoscale is not None else None
    used = f"{pool.node_hours or 0:.1f}"
    return used if budget is None else f"{used} of {budget:g}"


def _withheld(pool: NodePool) -> list[str]:
    """Lines that say for which jobs no node of the pool is launched, and why."""
    told = [f"no node of {pool.name} is launched for {each.job_name} ({each.job_id}): {each.reason}" for each in pool.withheld]
    more = pool.withheld_count - len(told)
    return told + ([f"nor for {more} more jobs"] if more > 0 else [])
