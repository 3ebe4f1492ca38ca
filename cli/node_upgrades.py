"""Nodes of pools that are launched anew, one after the other: drained, ended, and started with what the coordinator and their pool have now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.cli.answers import parsed
from paceline.cli.api_types import Node, NodeLaunch, NodePool
from paceline.cli.errors import ApiProblemError, CliError, UsageProblem
from paceline.cli.render.output import note
from paceline.cli.waiting import patient

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

LOOK_SECONDS = 1.0
#: How long a provider may take to end a node that is gone, before another one has its place.
END_SECONDS = 180.0
MANUAL = "manual"
Found = TypeVar("Found")


def nodes_to_upgrade(client: RestClient, references: Sequence[str], pool: str | None) -> list[Node]:
    """The nodes that a command names, or those of a pool. Raises UsageProblem where one of them cannot be launched anew."""
    if bool(references) == (pool is not None):
        raise UsageProblem("which nodes?", "name them, or give --pool NAME for all of a pool")
    if pool is not None:
        client.pool_path(pool)
    known = [parsed(each, Node) for each in client.pages("/cluster/nodes")] if pool is not None else []
    found = [each for each in known if each.pool == pool] or [parsed(client.node(each), Node) for each in references]
    if not found:
        raise UsageProblem(f"pool {pool} has no nodes", f"'paceline nodes add --pool {pool}' launches one")
    pools = {each["name"]: parsed(each, NodePool) for each in client.pages("/cluster/pools")}
    for node in found:
        _check(node, pools.get(node.pool or ""))
    return list({each.id: each for each in found}.values())


def _check(node: Node, pool: NodePool | None) -> None:
    if pool is None or node.provider == MANUAL:
        by_hand = "install the new version there and restart its agent, as docs/deploy/upgrade.md says"
        again = "remove it, and once it is gone add it again as it was added"
        raise UsageProblem(f"{node.name} is no node that a pool has launched", by_hand if node.provider == MANUAL else again)
    if pool.autoscale is not None:
        raise UsageProblem(
            f"{node.name} is of the pool {pool.name}, whose nodes come and go with its jobs",
            f"drain it ('paceline nodes drain {node.name}'): the next one that comes is new",
        )


def loss(nodes: Sequence[Node]) -> str:
    """Say what launching these nodes anew takes away."""
    jobs = sorted({slot.job_name for node in nodes for slot in node.slots if slot.job_name})
    drained = f"; these jobs move away from each, or end first: {', '.join(jobs)}" if jobs else ""
    names = ", ".join(node.name for node in nodes)
    return f"{names}: drained, ended and launched anew, one after the other{drained}. Checkpoints on disks of their own are lost."


def launch_anew(client: RestClient, node: Node) -> dict[str, Any]:
    """Drain and end a node, and launch one in its place, maybe on another host of its pool. Returns it once it is ready; raises CliError where it never is."""
    note(f"{node.name} is drained; if this is interrupted, 'paceline nodes add --pool {node.pool}' launches one in its place")
    client.delete(f"/cluster/nodes/{node.id}", force=False)
    said = [""]
    _until(lambda: _is_gone(client, node, said))
    deadline = time.monotonic() + END_SECONDS
    launch = _until(lambda: _asked_for(client, node, deadline))
    note(f"{launch.name} is being launched")
    return _until(lambda: _ready(client, launch))


def _until(look: Callable[[], Found | None]) -> Found:
    """Look once a second, through times without a coordinator, until something is found."""
    while (found := patient(look)) is None:
        threading.Event().wait(LOOK_SECONDS)
    return found


def _is_gone(client: RestClient, node: Node, said: list[str]) -> bool | None:
    """True once the node is gone; None before. `said`: what it was said to wait for."""
    left = next((parsed(each, Node) for each in client.pages("/cluster/nodes") if each["id"] == node.id), None)
    waits = ", ".join(left.drain_blocked_by or []) if left is not None else ""
    if waits and waits != said[0]:
        note(f"waiting for jobs: {waits}")
    said[0] = waits
    return True if left is None else None


def _asked_for(client: RestClient, node: Node, deadline: float) -> NodeLaunch | None:
    """The launch in the place of a node that is gone; None while its pool has no room, since the provider still ends the old one."""
    try:
        (document,) = client.create("/cluster/nodes", {"pool": node.pool, "count": 1})["launches"]
    except ApiProblemError as error:
        old = _launch(client, lambda each: each.name == node.name and each.handle == node.handle)
        if old is not None and old.failure:
            way_out = old.remedy or "'paceline nodes launches' tells more"
            raise CliError(f"{node.name} was drained, and is not ended: {old.failure}", way_out) from error
        if error.code != "pool_full" or time.monotonic() > deadline:
            raise
        return None
    return parsed(document, NodeLaunch)


def _ready(client: RestClient, launch: NodeLaunch) -> dict[str, Any] | None:
    nodes: list[dict[str, Any]] = client.pages("/cluster/nodes", status="ready")
    if (node := next((each for each in nodes if each["name"] == launch.name), None)) is not None:
        return node
    now = _launch(client, lambda each: each.id == launch.id)
    if now is not None and now.failure:
        raise CliError(
            f"{launch.name} could not be started: {now.failure}", now.remedy or f"then 'paceline nodes add --pool {launch.pool}'"
        )
    return None


def _launch(client: RestClient, is_meant: Callable[[NodeLaunch], bool]) -> NodeLaunch | None:
    listed = (parsed(each, NodeLaunch) for each in client.pages("/cluster/launches"))
    return next((each for each in listed if is_meant(each)), None)
