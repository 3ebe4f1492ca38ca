"""Commands for the nodes of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Node, NodeLaunch
from paceline.cli.completion import node_references
from paceline.cli.errors import UsageProblem
from paceline.cli.help import CommandGroup
from paceline.cli.node_launches import coming_lines, launch_table, show_launches, ssh_request
from paceline.cli.node_upgrades import launch_anew, loss, nodes_to_upgrade
from paceline.cli.questions import Yes, confirm
from paceline.cli.references import near_names
from paceline.cli.render import formats
from paceline.cli.render.output import fields, note, table
from paceline.cli.session import Session, with_session
from paceline.monitoring.samples import NO_GPU

app = CommandGroup(invoke_without_command=True)
NodeRef = Annotated[str, typer.Argument(metavar="NODE", help="id or name", show_default=False, autocompletion=node_references)]


#: The new machine's own part, before its command works.
NEEDED_FIRST = (
    "That machine needs first: the same version of Paceline with its extra [worker], and the checkpoint folder at the same path.",
    "Every step is in docs/second_machine.md.",
)
Status = Annotated[str | None, typer.Option(help="only these states, e.g. ready")]


@app.callback()
@with_session
def nodes(session: Session, context: typer.Context, status: Status = None) -> None:
    """List, add, upgrade, drain and remove nodes. Without a command: list them."""
    if context.invoked_subcommand is None:
        _list(session, status)


@app.command("list")
@with_session
def list_nodes(session: Session, status: Status = None) -> None:
    """List nodes and the jobs on their slots."""
    _list(session, status)


@app.command()
@with_session
def add(
    session: Session,
    pool: Annotated[str | None, typer.Option(metavar="NAME", help="launch nodes of this pool")] = None,
    number: Annotated[int | None, typer.Option("-n", "--count", min=1, max=256, help="how many nodes of the pool; default: 1")] = None,
    ssh: Annotated[
        list[str] | None, typer.Option(metavar="USER@HOST[:PORT]", help="install on this machine, and start; repeatable")
    ] = None,
    key_file: Annotated[str | None, typer.Option(metavar="FILE", help="with --ssh: private key, on the coordinator's machine")] = None,
    host_key: Annotated[
        list[str] | None, typer.Option(metavar="SHA256:...", help="with --ssh: of each host in turn, where known_hosts has none")
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, max=64, help="with --ssh: slots of each; default: what the machine has")] = None,
    labels: Annotated[list[str] | None, typer.Option("--label", metavar="K=V", help="with --ssh; repeatable")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="with --ssh: further settings, such as python=/opt/python3.12/bin/python3"),
    ] = None,
    expires: Annotated[int, typer.Option(min=60, max=86400, help="without --pool and --ssh: seconds until the token expires")] = 3600,
) -> None:
    """Launch nodes of a pool, or on hosts with SSH; without either, print the command that joins a machine, with a single-use token."""
    if ssh:
        _refuse(pool is not None or number is not None, "--pool and --count do not go with --ssh", "give --ssh once for each host")
        body = ssh_request(ssh, host_key or [], key_file, slots, labels or [], set_ or [])
    else:
        given = any(each is not None for each in (key_file, slots)) or bool(host_key or labels or set_)
        _refuse(given, "--key-file, --host-key, --slots, --label and --set go with --ssh", "give --ssh USER@HOST, or leave them out")
        _refuse(number is not None and pool is None, f"--count {number} of what?", "give --pool NAME")
        body = {"pool": pool, "count": number or 1} if pool else {"provisioner": "manual", "expires_in_seconds": expires}
    with session.client() as client:
        if pool is not None:
            client.pool_path(pool)
        document = client.create("/cluster/nodes", body)
    if pool or ssh:
        show_launches(session, document)
    else:
        _show_invitation(session, document)


def _refuse(wrong: bool, message: str, way_out: str) -> None:
    if wrong:
        raise UsageProblem(message, way_out)


def _show_invitation(session: Session, document: dict[str, Any]) -> None:
    warning = document.get("warning")
    where = "run on the coordinator's machine" if warning else "run there"
    session.emit(document, lambda: fields([(where, document["command"]), ("expires", document["expires_at"])]))
    if warning:
        note(f"warning: {warning}")
    elif session.for_people:
        note(*NEEDED_FIRST)


@app.command("launches")
@with_session
def list_launches(session: Session) -> None:
    """List nodes that are to come, that are being ended, and that could not be started, each with the reason."""
    with session.client() as client:
        documents = client.pages("/cluster/launches")
    session.emit(documents, lambda: launch_table([parsed(document, NodeLaunch) for document in documents]))


@app.command()
@with_session
def cancel(
    session: Session, launch: Annotated[str, typer.Argument(metavar="LAUNCH", help="id, or the name of its node", show_default=False)]
) -> None:
    """Cancel a node that has not joined, or take a failed one off the list."""
    with session.client() as client:
        known = client.pages("/cluster/launches")
        found = [each for each in known if launch in (each["id"], each["name"])]
        if not found:
            near = " or ".join(near_names(launch, (each["name"] for each in known)))
            offer = f"did you mean {near}? " if near else ""
            raise UsageProblem(
                f"there is no launch {launch!r}", f"{offer}'paceline nodes launches' lists them; a node that has joined is removed"
            )
        document = client.delete(f"/cluster/launches/{found[-1]['id']}")
    session.emit(document, lambda: f"{document['name']} is {'off the list' if document['failure'] else 'cancelled'}")


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
def drain(session: Session, node: NodeRef, yes: Yes = False) -> None:
    """Place nothing new, wait for running jobs to end, then remove the node. At a terminal it asks first."""
    _remove(session, node, force=False, ask=not yes)


@app.command()
@with_session
def remove(
    session: Session,
    node: NodeRef,
    force: Annotated[bool, typer.Option("--force", help="stop running ranks immediately")] = False,
    yes: Yes = False,
) -> None:
    """Remove a node, drained first, or with --force at once. At a terminal it asks first."""
    _remove(session, node, force=force, ask=not yes)


@app.command()
@with_session
def upgrade(
    session: Session,
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODE]...", help="ids or names", show_default=False, autocompletion=node_references)
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="NAME", help="all nodes of this pool")] = None,
    yes: Yes = False,
) -> None:
    """Drain nodes of pools and launch them anew, one after the other: with the coordinator's version (ssh) and their pool's settings of now. At a
    terminal it asks first."""
    with session.client() as client:
        found = nodes_to_upgrade(client, nodes or [], pool)
        if not yes:
            confirm(loss(found), "Go on?")
        documents = [launch_anew(client, each) for each in found]
    ready = [parsed(each, Node) for each in documents]
    session.emit(documents, lambda: "\n".join(f"{each.name} is ready, with Paceline {_version(each)}" for each in ready))


def _version(node: Node) -> str:
    return node.versions.get("paceline", formats.UNKNOWN)


def _list(session: Session, status: str | None) -> None:
    with session.client() as client:
        documents = client.pages("/cluster/nodes", status=status)
        coming = [] if status or not session.for_people else coming_lines(client)
    nodes = [parsed(document, Node) for document in documents]
    session.emit(documents, lambda: _table(nodes))
    note(*coming)
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


def _remove(session: Session, reference: str, force: bool, ask: bool) -> None:
    with session.client() as client:
        found = parsed(client.node(reference), Node)
        if ask:
            confirm(_removal(found, force), "Remove?")
        document = client.delete(f"/cluster/nodes/{found.id}", force=force)
    node = parsed(document, Node)
    session.emit(document, lambda: f"{node.name} is {node.state}")
    if node.drain_blocked_by:
        note(f"waiting for jobs: {', '.join(node.drain_blocked_by)}")


def _removal(node: Node, force: bool) -> str:
    """What the removal of a node does to the jobs there."""
    jobs = sorted({slot.job_name for slot in node.slots if slot.job_name})
    consequence = "no job runs there" if not jobs else f"{'stops the ranks of' if force else 'waits for'} {', '.join(jobs)}"
    return f"{node.name} ({node.id}) will be removed: {consequence}. To come back it needs a new join token."


def _table(nodes: list[Node]) -> str:
    rows = [
        [
            node.name,
            node.state,
            node.pool or node.provider or formats.UNKNOWN,
            f"{sum(slot.job_id is not None for slot in node.slots)}/{len(node.slots)} {node.device}",
            ", ".join(sorted({slot.job_name for slot in node.slots if slot.job_name})) or formats.UNKNOWN,
            _facets(node.labels) or formats.UNKNOWN,
            _facets(node.taints) or formats.UNKNOWN,
            node.address,
            _version(node),
            formats.duration(node.heartbeat_age_seconds),
            node.id,
        ]
        for node in nodes
    ]
    headers = ["NAME", "STATE", "POOL", "SLOTS USED", "JOBS", "LABELS", "TAINTS", "ADDRESS", "VERSION", "HEARTBEAT", "ID"]
    return table(headers, rows, empty="no nodes; 'paceline nodes add' prints the command that joins one")
