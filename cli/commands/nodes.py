"""Commands for the nodes of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from paceline.cli import formats
from paceline.cli.answers import parsed
from paceline.cli.api_types import Node
from paceline.cli.errors import UsageProblem
from paceline.cli.output import fields, note, table
from paceline.cli.session import Session, with_session
from paceline.monitoring.samples import NO_GPU

app = typer.Typer(invoke_without_command=True)
NodeRef = Annotated[str, typer.Argument(metavar="NODE", help="id or name", show_default=False)]


Status = Annotated[str | None, typer.Option(help="only these states, e.g. ready")]


@app.callback()
@with_session
def nodes(session: Session, context: typer.Context, status: Status = None) -> None:
    """Nodes: list (the default), add, cordon, uncordon, taint, untaint, drain, remove."""
    if context.invoked_subcommand is None:
        _list(session, status)


@app.command("list")
@with_session
def list_nodes(session: Session, status: Status = None) -> None:
    """List nodes and the jobs on their slots."""
    _list(session, status)


@app.command()
@with_session
def add(session: Session, expires: Annotated[int, typer.Option(min=60, max=86400, help="seconds until the token expires")] = 3600) -> None:
    """Make a single-use join token and print the command to run on the new machine."""
    with session.client() as client:
        document = client.create("/cluster/nodes", {"provisioner": "manual", "expires_in_seconds": expires})
    warning = document.get("warning")
    where = "run on the coordinator's machine" if warning else "run there"
    session.emit(document, lambda: fields([(where, document["command"]), ("expires", document["expires_at"])]))
    if warning:
        note(f"warning: {warning}")


@app.command()
@with_session
def cordon(session: Session, node: NodeRef) -> None:
    """Place nothing new on a node; what runs there goes on."""
    _put(session, node, "cordon")


@app.command()
@with_session
def uncordon(session: Session, node: NodeRef) -> None:
    """Place jobs on a node again."""
    _put(session, node, "uncordon")


@app.command()
@with_session
def taint(
    session: Session,
    node: NodeRef,
    taints: Annotated[list[str], typer.Argument(metavar="KEY[=VALUE]...", help="one value for each key", show_default=False)],
) -> None:
    """Keep new jobs off a node unless they tolerate this (resources.tolerations); what runs there goes on."""
    added: dict[str, str] = {}
    for key, _, value in (each.partition("=") for each in taints):
        if added.setdefault(key, value) != value:
            raise UsageProblem(f"taint {key} is given twice, as {added[key]!r} and {value!r}", "a node has one value for each key")
    _change_taints(session, node, {"set": added})


@app.command()
@with_session
def untaint(
    session: Session,
    node: NodeRef,
    taints: Annotated[list[str], typer.Argument(metavar="KEY[=VALUE]...", help="by key, with any value or this one", show_default=False)],
) -> None:
    """Take taints off a node."""
    _change_taints(session, node, {"remove": taints})


@app.command()
@with_session
def drain(session: Session, node: NodeRef) -> None:
    """Place nothing new, wait for what runs there to end, then remove the node."""
    _remove(session, node, force=False)


@app.command()
@with_session
def remove(
    session: Session, node: NodeRef, force: Annotated[bool, typer.Option("--force", help="now: its ranks are stopped")] = False
) -> None:
    """Remove a node: drained first, or with --force at once."""
    _remove(session, node, force=force)


def _list(session: Session, status: str | None) -> None:
    with session.client() as client:
        documents = client.pages("/cluster/nodes", status=status)
    nodes = [parsed(document, Node) for document in documents]
    session.emit(documents, lambda: _table(nodes))
    note(*(f"{node.name}: {node.gpu_note}" for node in nodes if node.gpu_note not in (None, NO_GPU)))


def _put(session: Session, reference: str, verb: str) -> None:
    with session.client() as client:
        document = client.put(f"/cluster/nodes/{client.node_id(reference)}/{verb}")
    session.emit(document, lambda: f"{document['name']} is {document['state']}")


def _change_taints(session: Session, reference: str, change: dict[str, object]) -> None:
    with session.client() as client:
        document = client.patch(f"/cluster/nodes/{client.node_id(reference)}/taints", body=change)
    session.emit(document, lambda: f"{document['name']} has taints: {_facets(document['taints']) or 'none'}")


def _facets(given: Mapping[str, str]) -> str:
    """Labels or taints in one line."""
    return " ".join(f"{key}={value}" if value else key for key, value in sorted(given.items()))


def _remove(session: Session, reference: str, force: bool) -> None:
    with session.client() as client:
        document = client.delete(f"/cluster/nodes/{client.node_id(reference)}", force=force)
    node = parsed(document, Node)
    session.emit(document, lambda: f"{node.name} is {node.state}")
    if node.drain_blocked_by:
        note(f"waiting for jobs: {', '.join(node.drain_blocked_by)}")


def _table(nodes: list[Node]) -> str:
    rows = [
        [
            node.name,
            node.state,
            f"{sum(slot.job_id is not None for slot in node.slots)}/{len(node.slots)} {node.device}",
            ", ".join(sorted({slot.job_name for slot in node.slots if slot.job_name})) or formats.UNKNOWN,
            _facets(node.labels) or formats.UNKNOWN,
            _facets(node.taints) or formats.UNKNOWN,
            node.address,
            formats.duration(node.heartbeat_age_seconds),
            node.id,
        ]
        for node in nodes
    ]
    headers = ["NAME", "STATE", "SLOTS USED", "JOBS", "LABELS", "TAINTS", "ADDRESS", "HEARTBEAT", "ID"]
    return table(headers, rows, empty="no nodes; 'paceline nodes add' prints the command that joins one")
