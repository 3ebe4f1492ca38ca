"""What of a planned job's messages crosses the network between nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from paceline.api.schemas.jobs import NetworkPlan, PlannedAxis, RankPlacement
from paceline.api.services.planning.plan_machines import shares_without_others
from paceline.db.models.nodes import NodeRow
from paceline.parallelism.planning.topology import MESSAGES, axes_in_use, ranks_inside, spans_nodes
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import ScriptWorkload

#: Beyond, nodes are counted.
MOST_NAMED = 4
#: Axes with so many messages that a network between their ranks slows every step down.
_TALKATIVE = ("tensor", "context")


def network_plan(spec: JobSpec, placement: Sequence[RankPlacement] | None, nodes: Sequence[NodeRow]) -> NetworkPlan | None:
    """Return what crosses the network if the job runs where it is placed or, if it would wait, where it would be without other jobs. None: it has
    one rank, or the nodes that are here would not hold it."""
    if placement is not None:
        names = Counter(each.node_name for each in placement)
        shares, where = list(names.values()), _on(list(names))
    else:
        shares = list(shares_without_others(spec, nodes))
        where = f"{len(shares)} nodes"
    if sum(shares) <= 1:
        return None
    is_script = isinstance(spec.workload, ScriptWorkload)
    axes = [] if is_script else _axes(spec, shares)
    return NetworkPlan(ranks_by_node=shares, axes=axes, text=_sentence(shares, where, axes, is_script=is_script))


def warning(spec: JobSpec, network: NetworkPlan | None) -> str | None:
    """The warning that an axis whose ranks talk in every block spans nodes, with the way out."""
    slow = next((each for each in network.axes if each.between_nodes and each.axis in _TALKATIVE), None) if network else None
    if slow is None:
        return None
    group = ranks_inside(slow.axis, spec.parallelism.degrees(spec.world_size)) * slow.ranks
    return (
        f"{slow.axis}={slow.ranks} spans nodes, so that {slow.carries}, cross the network; resources.slots_per_node={group} keeps the "
        f"{group} ranks on one node, where a node has so many slots"
    )


def _axes(spec: JobSpec, shares: Sequence[int]) -> list[PlannedAxis]:
    degrees = spec.parallelism.degrees(sum(shares))
    if degrees.servers:
        carries = "gradients and parameters, between each server and all other ranks, once a step"
        return [PlannedAxis(axis="server", ranks=degrees.world_size, carries=carries, between_nodes=len(shares) > 1)]
    messages = dict(MESSAGES)
    if spec.communication.is_auto:
        messages["replicate"] += ", in whichever way is measured to be fastest"
    return [
        PlannedAxis(axis=axis, ranks=getattr(degrees, axis), carries=messages[axis], between_nodes=spans_nodes(axis, degrees, shares))
        for axis in axes_in_use(degrees)
    ]


def _on(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} nodes"


def _sentence(shares: Sequence[int], where: str, axes: Sequence[PlannedAxis], *, is_script: bool) -> str:
    if len(shares) == 1:
        return f"no traffic, all {shares[0]} ranks are on one node"
    sizes = " + ".join(map(str, shares)) if len(shares) <= MOST_NAMED else f"{sum(shares)}"
    if is_script:
        return f"all that the script sends between nodes; {sizes} ranks on {where}"
    between = ", ".join(f"{each.axis} {each.ranks} ({each.carries})" for each in axes if each.between_nodes)
    within = ", ".join(f"{each.axis} {each.ranks} ({each.carries})" for each in axes if not each.between_nodes)
    return f"{between or 'nothing'}; {sizes} ranks on {where}{f'; within a node: {within}' if within else ''}"
