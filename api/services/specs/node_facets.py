"""The labels, taints and cards of a node: what its agent says, and what an admin has set in the place of the agent's taints."""

from __future__ import annotations

from paceline.cluster.policy.mounts import NodeMounts
from paceline.cluster.policy.requirements import CONTAINER_ENGINE, UV, NodeTool, facets
from paceline.db.models.nodes import NodeRow
from paceline.training.spec.job import JobSpec


def labels_of(node: NodeRow) -> dict[str, str]:
    """The labels that the node's agent was started with."""
    return dict((node.inventory or {}).get("labels", {}))


def label_facets_of(node: NodeRow) -> frozenset[str]:
    """The node's labels as placement compares them, with the facets of its tools."""
    return facets(labels_of(node)) | tool_facets_of(node)


def disk_of(node: NodeRow) -> str | None:
    """The identity of the node's default folder for checkpoints; None where other machines may see it, or that is not known."""
    found = (node.inventory or {}).get("checkpoint_disk")
    return str(found) if found else None


def mounts_of(node: NodeRow) -> NodeMounts | None:
    """The machine and the shared file systems of a node, as they were when its agent started. None: it does not say."""
    inventory = node.inventory or {}
    shared, machine = inventory.get("shared_mounts"), inventory.get("machine")
    return (
        NodeMounts(str(machine), tuple(shared), tuple(inventory.get("own_mounts", ())))
        if shared is not None and machine is not None
        else None
    )


def folder_at(node: NodeRow, directory: str | None) -> str | None:
    """The identity of the folder where a job saves on the node, as of `policy.folders.folder_of`. `directory`: that which it names."""
    if directory is None:
        return disk_of(node)
    mounts = mounts_of(node)
    return mounts.place_of(directory) if mounts is not None else None


def tool_facets_of(node: NodeRow) -> frozenset[str]:
    """The facets of the tools that a node has. An agent that does not speak of them is taken to have uv, which comes with Paceline, and no container
    engine: a version that knows images also says which engine runs them."""
    inventory = node.inventory or {}
    engine = {CONTAINER_ENGINE.facet} if inventory.get("container_engines") else set()
    uv = {UV.facet} if inventory.get("has_uv") is not False else set()
    return frozenset(engine | uv)


def tools_for(spec: JobSpec) -> list[NodeTool]:
    """The tools that every node of a job has to have."""
    wanted = [(spec.environment.image, CONTAINER_ENGINE), (spec.environment.requirements, UV)]
    return [tool for given, tool in wanted if given is not None]


def taints_of(node: NodeRow) -> dict[str, str]:
    """The taints that an admin has set; as long as none has, those that the agent was started with."""
    return dict((node.inventory or {}).get("taints", {})) if node.taints is None else dict(node.taints)


def card_of(node: NodeRow, slot: int) -> int | None:
    """The driver's index of the card that the node offers as this slot now; None: the node's slots are CPUs."""
    if node.device != "cuda":
        return None
    cards = (node.inventory or {}).get("gpus", [])
    return int(cards[slot]["index"]) if slot < len(cards) else slot
