"""The labels, taints and cards of a node: what its agent says, and what an admin has set in the place of the agent's taints."""

from __future__ import annotations

from paceline.cluster.policy.requirements import CONTAINER_ENGINE, facets
from paceline.db.models.nodes import NodeRow


def labels_of(node: NodeRow) -> dict[str, str]:
    """The labels that the node's agent was started with."""
    return dict((node.inventory or {}).get("labels", {}))


def label_facets_of(node: NodeRow) -> frozenset[str]:
    """The node's labels as placement compares them, with the one of nodes that can run containers."""
    own = {CONTAINER_ENGINE} if (node.inventory or {}).get("container_engines") else set()
    return facets(labels_of(node)) | own


def taints_of(node: NodeRow) -> dict[str, str]:
    """The taints that an admin has set; as long as none has, those that the agent was started with."""
    return dict((node.inventory or {}).get("taints", {})) if node.taints is None else dict(node.taints)


def card_of(node: NodeRow, slot: int) -> int | None:
    """The driver's index of the card that the node offers as this slot now; None: the node's slots are CPUs."""
    if node.device != "cuda":
        return None
    cards = (node.inventory or {}).get("gpus", [])
    return int(cards[slot]["index"]) if slot < len(cards) else slot
