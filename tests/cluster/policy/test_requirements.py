"""Which nodes a gang may be placed on."""

from __future__ import annotations

import pytest

from paceline.cluster.policy.requirements import ANY_NODE, Requirements, facets

NODE = {"device": "cpu", "labels": facets({"zone": "near", "fast": ""}), "taints": facets({})}
TAINTED = NODE | {"taints": facets({"dedicated": "vision", "broken": ""})}


@pytest.mark.parametrize(
    ("requirements", "node", "obstacle"),
    [
        (ANY_NODE, NODE, None),
        (Requirements(device="cpu", labels=facets({"zone": "near"})), NODE, None),
        (Requirements(device="cuda"), NODE, "device cpu"),
        (Requirements(labels=facets({"zone": "far", "disk": "big"})), NODE, "no label disk=big, zone=far"),
        (ANY_NODE, TAINTED, "taint broken, dedicated=vision"),
        (Requirements(tolerations=frozenset({"dedicated", "broken"})), TAINTED, None),
        (Requirements(tolerations=frozenset({"dedicated=vision"})), TAINTED, "taint broken"),
        (Requirements(tolerations=frozenset({"dedicated=audio", "broken"})), TAINTED, "taint dedicated=vision"),
    ],
)
def test_what_keeps_a_gang_off_a_node_is_named(requirements: Requirements, node: dict[str, frozenset[str]], obstacle: str | None) -> None:
    assert requirements.obstacle(**node) == obstacle  # type: ignore[arg-type]
