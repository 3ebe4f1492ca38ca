"""The tools that the next node of a pool will have: as its nodes have them, or as its owner says while no node tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.specs.node_facets import tool_facets_of
from paceline.cluster.policy.requirements import CONTAINER_ENGINE, UV
from paceline.cluster.provisioners.settings import AutoscaleSettings
from paceline.db.models.nodes import NodeRow
from paceline.db.models.provisioning import PoolRow
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import provisioning as rows


@dataclass(frozen=True)
class PoolTools:
    """The facets of the tools that another node of a pool is expected to have."""

    facets: frozenset[str]
    no_engine: str = ""  # why no container engine is among them, and what to do; empty: one is


async def read(session: AsyncSession, pool: PoolRow, nodes: Sequence[NodeRow]) -> PoolTools:
    """The tools of the next node of a pool with `autoscale`. `nodes`: the present nodes of the cluster.

    What its nodes have counts, those of the past too where none is present. What the pool says counts only if it was said after the newest
    of them had joined: else a pool that is wrong would launch a node that no job can use, and drain it, on and on."""
    known = [node for node in nodes if node.pool == pool.name and node.inventory]
    newest = max(known, key=lambda node: node.joined_at) if known else await node_rows.newest_of_pool(session, pool.name)
    found = frozenset[str]().union(*map(tool_facets_of, known or ([newest] if newest else []))) if newest else frozenset({UV.facet})
    claimed = AutoscaleSettings.model_validate(pool.autoscale).containers and (newest is None or pool.updated_at > newest.joined_at)
    if claimed or CONTAINER_ENGINE.facet in found:
        return PoolTools(found | {CONTAINER_ENGINE.facet})
    return PoolTools(found, _why_no_engine(pool.name, newest))


async def of_autoscaled(session: AsyncSession, nodes: Sequence[NodeRow]) -> dict[str, PoolTools]:
    """The tools of the next node of each pool with `autoscale`."""
    return {pool.name: await read(session, pool, nodes) for pool in await rows.autoscaled(session)}


def _why_no_engine(pool: str, newest: NodeRow | None) -> str:
    if newest is None:
        return f"{pool} has had no node, so it is not known whether its nodes have {_ENGINES}: if they do, set autoscale.containers of the pool to true"
    return f"{pool}'s newest node, {newest.name}, has none of {_ENGINES} that works: install one, then launch a node by 'paceline nodes add --pool {pool}'"


_ENGINES = "podman, docker or apptainer"
