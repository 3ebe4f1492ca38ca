"""The programs on nodes that some jobs need: a container engine for `environment.image`, uv for `environment.requirements`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError
from paceline.api.services.nodes import expected_nodes
from paceline.api.services.nodes.expected_nodes import ExpectedNode
from paceline.api.services.specs.node_facets import label_facets_of, tools_for
from paceline.cluster.policy.requirements import CONTAINER_ENGINE, UV, NodeTool
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec.job import JobSpec

MOST_NAMED = 3
_POINTERS = {CONTAINER_ENGINE.code: "/environment/image", UV.code: "/environment/requirements"}


async def check(session: AsyncSession, spec: JobSpec, nodes: Sequence[NodeRow] | None = None) -> None:
    """Raises ProblemError `no_container_engine` or `no_uv` where none of the present `nodes` (default: they are read) has a program that the job needs,
    and no pool would launch one that has it. Without any node, or while one joins and has not told what it has, the job may wait for one."""
    if not (tools := tools_for(spec)):
        return
    nodes = await node_rows.present(session) if nodes is None else nodes
    if not nodes or any(node.state is NodeState.JOINING for node in nodes):
        return
    lacking = [tool for tool in tools if not any(tool.facet in label_facets_of(node) for node in nodes)]
    pools = await expected_nodes.of_autoscaled(session, nodes) if lacking else {}
    for tool in lacking:
        if not any(tool.facet in each.tools for each in pools.values()):
            raise _refusal(tool, nodes, pools)


def _refusal(tool: NodeTool, nodes: Sequence[NodeRow], pools: Mapping[str, ExpectedNode]) -> ProblemError:
    pointer, why = _POINTERS[tool.code], f"{tool.lacking}; here: {_named(nodes)}"
    hints = [tool.way_out]
    if tool is CONTAINER_ENGINE:
        hints += [each.no_engine for each in pools.values()]
    hint = "; ".join(hints[: 1 + MOST_NAMED])
    return ProblemError(
        tool.code, f"{pointer}: {why}; {hint}", errors=[FieldError(pointer=pointer, code=tool.code, message=why, hint=hint)]
    )


def _named(nodes: Sequence[NodeRow]) -> str:
    names = ", ".join(node.name for node in nodes[:MOST_NAMED])
    return names if len(nodes) <= MOST_NAMED else f"{names} and {len(nodes) - MOST_NAMED} more"
