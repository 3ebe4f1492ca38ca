"""The programs on nodes that some jobs need: a container engine for `environment.image`, uv for `environment.requirements`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError
from paceline.api.services.specs.node_facets import label_facets_of, tools_for
from paceline.cluster.policy.requirements import CONTAINER_ENGINE, UV
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.training.spec.job import JobSpec

MOST_NAMED = 3
_POINTERS = {CONTAINER_ENGINE.code: "/environment/image", UV.code: "/environment/requirements"}


async def check(session: AsyncSession, spec: JobSpec) -> None:
    """Raises ProblemError where no present node has a program that the job needs."""
    if tools_for(spec):
        refuse_without(spec, await node_rows.present(session))


def refuse_without(spec: JobSpec, nodes: Sequence[NodeRow]) -> None:
    """Raises ProblemError `no_container_engine` or `no_uv` where none of `nodes` has a program that the job needs. Without any node the job may wait
    for one."""
    for tool in tools_for(spec):
        if nodes and not any(tool.facet in label_facets_of(node) for node in nodes):
            pointer, why = _POINTERS[tool.code], f"{tool.lacking}; here: {_named(nodes)}"
            errors = [FieldError(pointer=pointer, code=tool.code, message=why, hint=tool.way_out)]
            raise ProblemError(tool.code, f"{pointer}: {why}; {tool.way_out}", errors=errors)


def _named(nodes: Sequence[NodeRow]) -> str:
    names = ", ".join(node.name for node in nodes[:MOST_NAMED])
    return names if len(nodes) <= MOST_NAMED else f"{names} and {len(nodes) - MOST_NAMED} more"
