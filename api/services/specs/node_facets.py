"""The labels, taints and cards of a node: what its agent says, and what an admin has set in the place of the agent's taints."""

from __future__ import annotations

from paceline.db.models.nodes import NodeRow


def labels_of(node: NodeRow) -> dict[str, str]:
    """The labels that the node's agent was started with."""
    return dict((node.inventory or {}).get("labels", {}))


def taints_of(node: NodeRow) -> dict[str, str]:
    """The taints that an admin has set; as long as none has, those that the agent was started with."""
    return dict((node.inventory or {}).get("taints", {})) if node.taints is None else dict(node.taints)


def card_of(node: NodeRow, slot: int) -> int | None:
    """The driver's index of the card that the node offers as this slot now; None: the node's slots are CPUs."""
    if node.device != "cuda":
        return None
    cards = (node.inventory or {}).get("gpus", [])
    return int(cards[slot]["index"]) if slot < len(cards) else slot
