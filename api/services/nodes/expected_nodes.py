"""What the next node of a pool will have: its device, tools and folder for checkpoints, as its nodes have them, or as its owner says while no node
tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.nodes.node_hours import NodeHours
from paceline.api.services.specs.node_facets import disk_of, mounts_of, tool_facets_of
from paceline.cluster.policy.mounts import NodeMounts
from paceline.cluster.policy.requirements import CONTAINER_ENGINE, UV
from paceline.cluster.provisioners.settings import AutoscaleSettings
from paceline.db.models.nodes import NodeRow
from paceline.db.models.provisioning import PoolRow
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import provisioning as rows


@dataclass(frozen=True)
class ExpectedNode:
    """Describes another node of a pool, as it is expected to be."""

    device: str  # of its slots
    tools: frozenset[str]  # the facets of its tools
    wrong_device: str = ""  # why its device is not the one that the pool says, and what to do; empty: it is
    no_engine: str = ""  # why no container engine is among the tools, and what to do; empty: one is
    no_shared_folder: str = ""  # why its default folder for checkpoints is certainly its own, and what to do; empty: others may see it
    mounts: NodeMounts | None = None  # those of its newest node; None: not known, or several of its nodes are on one machine


async def read(session: AsyncSession, pool: PoolRow, nodes: Sequence[NodeRow]) -> ExpectedNode:
    """The next node of a pool with `autoscale`. `nodes`: the present nodes of the cluster.

    What its nodes have counts, those of the past too where none is present. What the pool says counts only if it was said after the newest
    of them had joined: else a pool that is wrong would launch a node that no job can use, and drain it, on and on."""
    said = AutoscaleSettings.model_validate(pool.autoscale)
    said_tools = frozenset({CONTAINER_ENGINE.facet}) if said.containers else frozenset[str]()
    known = [node for node in nodes if node.pool == pool.name and node.inventory]
    newest = max(known, key=lambda node: (node.joined_at, node.id)) if known else await node_rows.newest_of_pool(session, pool.name)
    if newest is None:
        return ExpectedNode(said.device, said_tools | {UV.facet}, no_engine="" if said_tools else _why_unknown_engine(pool.name))
    devices = {node.device for node in known or [newest]}
    tools = frozenset[str]().union(*map(tool_facets_of, known or [newest]))
    said_since = pool.updated_at > newest.joined_at
    if said_since:
        devices, tools = devices | {said.device}, tools | said_tools
    disks = [disk_of(node) for node in known or [newest]]
    apart = None not in disks and len(set(disks)) == len(disks) and not said_since
    return ExpectedNode(
        device=said.device if said.device in devices else newest.device,
        tools=tools,
        wrong_device="" if said.device in devices else _why_wrong_device(said.device, newest),
        no_engine="" if CONTAINER_ENGINE.facet in tools else _why_no_engine(newest),
        no_shared_folder=_why_no_shared_folder(newest) if apart else "",
        mounts=None if said_since else _mounts(known or [newest], newest),
    )


def _mounts(known: Sequence[NodeRow], newest: NodeRow) -> NodeMounts | None:
    machines = {mounts.machine for node in known if (mounts := mounts_of(node)) is not None}
    return mounts_of(newest) if len(machines) == len(known) else None


async def of_autoscaled(session: AsyncSession, nodes: Sequence[NodeRow]) -> dict[str, ExpectedNode]:
    """The next node of each pool with `autoscale`."""
    return {pool.name: await read(session, pool, nodes) for pool in await readable_autoscaled(session)}


async def readable_autoscaled(session: AsyncSession) -> list[PoolRow]:
    """The pools with `autoscale` that this version can read. The others grow and shrink no more, which the autoscaler tells."""
    return [pool for pool in await rows.autoscaled(session) if why_unreadable(pool) is None]


def why_unreadable(pool: PoolRow) -> Exception | None:
    """The exception that reading a pool's settings and its count of node-hours raises: another version may have stored them. None: both can be
    read."""
    try:
        AutoscaleSettings.model_validate(pool.autoscale)
        NodeHours.stored(pool.spent, pool.updated_at)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the pool's own
        return error
    return None


def _why_wrong_device(said: str, newest: NodeRow) -> str:
    return (
        f"{newest.pool}'s newest node, {newest.name}, has slots of the device {newest.device}, not {said} as autoscale.device says: correct its "
        f"provider or autoscale.device and apply the pool, or mend the machine and launch a node by 'paceline nodes add --pool {newest.pool}'"
    )


def _why_unknown_engine(pool: str) -> str:
    return f"{pool} has had no node, so it is not known whether its nodes have {_ENGINES}: if they do, set autoscale.containers of the pool to true"


def _why_no_engine(newest: NodeRow) -> str:
    return (
        f"{newest.pool}'s newest node, {newest.name}, has none of {_ENGINES} that works: install one, then launch a node by "
        f"'paceline nodes add --pool {newest.pool}'"
    )


def _why_no_shared_folder(newest: NodeRow) -> str:
    return (
        f"it saves in the default folder of its nodes, and each of {newest.pool}'s has its own, as {newest.name}: set checkpoint.directory of the job to "
        f"a place that all of them see, or let the pool's provider use one"
    )


_ENGINES = "podman, docker or apptainer"
