"""Nodes that are to come: what the command line asks for, and how it shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paceline.cli.answers import parsed
from paceline.cli.api_types import NodeLaunch
from paceline.cli.errors import ApiProblemError, UsageProblem
from paceline.cli.job_filters import label_pairs
from paceline.cli.render import formats
from paceline.cli.render.output import note, table
from paceline.cli.session import Session

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without


def ssh_request(
    hosts: Sequence[str], host_keys: Sequence[str], key_file: str | None, slots: int | None, labels: Sequence[str], further: Sequence[str]
) -> dict[str, Any]:
    """The body of a request for nodes on hosts with SSH. Raises UsageProblem."""
    from paceline.cli.documents import with_changes

    if len(host_keys) > len(hosts):
        raise UsageProblem(
            f"--host-key is given {len(host_keys)} times for {len(hosts)} host(s)", "give it once for each --ssh, in the same order"
        )
    listed: list[Any] = list(hosts)
    for number, fingerprint in enumerate(host_keys):
        listed[number] = written_host(hosts[number]) | {"host_key": fingerprint}
    provider: dict[str, Any] = {"type": "ssh", "hosts": listed} | ({"key_file": key_file} if key_file else {})
    provider = with_changes(provider, further)
    body: dict[str, Any] = {"provider": provider, "labels": label_pairs(labels)}
    return body | ({"slots": slots} if slots is not None else {})


def written_host(text: str) -> dict[str, Any]:
    """The fields of a host that is written as user@host:port, or user@[address]:port."""
    user, _, place = text.rpartition("@")
    address, bracket, rest = place.removeprefix("[").partition("]")
    host, _, port = (address, "", rest.removeprefix(":")) if bracket else place.partition(":")
    return {"host": host} | ({"user": user} if user else {}) | ({"port": int(port)} if port.isdecimal() else {})


def show_launches(session: Session, document: dict[str, Any]) -> None:
    """Show what was asked for; nodes that people start come with their commands, whose tokens are shown once."""
    launches = [parsed(each, NodeLaunch) for each in document["launches"]]
    session.emit(document, lambda: "\n".join(each.command for each in launches if each.command) or launch_table(launches))
    if document.get("warning"):
        note(f"warning: {document['warning']}")
    elif session.for_people and not any(each.command for each in launches):
        note("'paceline nodes' shows how far they are")


def launch_table(launches: Sequence[NodeLaunch]) -> str:
    """Nodes that are to come, with their reasons."""
    rows = [
        [
            each.name,
            each.state if each.wanted else f"{each.state}, cancelled",
            each.pool or each.provider,
            each.failure or each.reason or formats.UNKNOWN,
            each.remedy or formats.UNKNOWN,
            each.id,
        ]
        for each in launches
    ]
    return table(["NAME", "STATE", "POOL", "REASON", "WAY OUT", "ID"], rows, empty="no nodes are to come")


def coming_lines(client: RestClient) -> list[str]:
    """A line for each node that is to come or could not be started."""
    try:
        documents = client.pages("/cluster/launches")
    except ApiProblemError as error:
        if error.status != 404:
            raise
        return []  # a coordinator of a version before
    return [_line(parsed(document, NodeLaunch)) for document in documents]


def _line(launch: NodeLaunch) -> str:
    why = launch.failure or launch.reason
    way_out = f"; {launch.remedy}" if launch.remedy else ""
    taken_off = f" ('paceline nodes cancel {launch.name}' takes it off the list)" if launch.failure else ""
    how = "could not be started" if launch.failure else f"is {launch.state}"
    return f"{launch.name} {how}{f': {why}' if why else ''}{way_out}{taken_off}"
