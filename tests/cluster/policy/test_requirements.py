"""Which nodes a gang may be placed on."""

from __future__ import annotations

import pytest

from paceline.cluster.policy.placement import QueuedGang, place
from paceline.cluster.policy.requirements import ANY_NODE, TOOLS, NodeTool, Requirements, facets
from tests.cluster.policy.test_placement import node, request, shares

NODE = {"device": "cpu", "labels": facets({"zone": "near", "fast": ""}), "taints": facets({})}
TAINTED = NODE | {"taints": facets({"dedicated": "vision", "broken": ""})}


@pytest.mark.parametrize(
    ("requirements", "node", "obstacle"),
    [
        (ANY_NODE, NODE, None),
        (Requirements(device="cpu", labels=facets({"zone": "near"})), NODE, None),
        (Requirements(device="cuda"), NODE, "device cpu"),
        (Requirements(device="cuda", has_run=True), NODE, "device cpu, and it has run on cuda"),
        (Requirements(labels=facets({"zone": "far", "disk": "big"})), NODE, "no label disk=big, zone=far"),
        (ANY_NODE, TAINTED, "taint broken, dedicated=vision"),
        (Requirements(tolerations=frozenset({"dedicated", "broken"})), TAINTED, None),
        (Requirements(tolerations=frozenset({"dedicated=vision"})), TAINTED, "taint broken"),
        (Requirements(tolerations=frozenset({"dedicated=audio", "broken"})), TAINTED, "taint dedicated=vision"),
    ],
)
def test_what_keeps_a_gang_off_a_node_is_named(requirements: Requirements, node: dict[str, frozenset[str]], obstacle: str | None) -> None:
    assert requirements.obstacle(**node) == obstacle  # type: ignore[arg-type]


@pytest.mark.parametrize("tool", TOOLS, ids=[tool.code for tool in TOOLS])
def test_a_job_whose_tool_no_node_has_says_so_and_is_kept_off_nodes_without(tool: NodeTool) -> None:
    wants = Requirements(labels=frozenset({tool.facet}))
    without, having = node("a"), node("b", labels=wants.labels)
    (waits,) = place([request("job", requirements=wants)], [without])
    assert isinstance(waits, QueuedGang)
    assert (waits.reason.code, waits.reason.next_step) == (tool.code, tool.way_out)
    assert waits.reason.text == f"needs 1 node with 1 slot; {tool.lacking}"
    assert shares(place([request("job", requirements=wants)], [without, having])[0]) == [("b", 1)]
    (waits,) = place([request("job", 5, requirements=wants)], [without, having])
    assert isinstance(waits, QueuedGang)
    assert f"it cannot use a ({tool.obstacle})" in waits.reason.text


@pytest.mark.parametrize("tool", TOOLS, ids=[tool.code for tool in TOOLS])
def test_a_job_whose_tool_some_nodes_lack_is_told_how_they_get_it(tool: NodeTool) -> None:
    """The way out was other labels, tolerations or another device, none of which helps."""
    wants = request("job", 2, spread=True, requirements=Requirements(labels=frozenset({tool.facet, "zone=near"})))
    having, without = node("b", labels=wants.requirements.labels), node("a", labels=frozenset({"zone=near"}))
    (waits,) = place([wants], [without, having])
    assert isinstance(waits, QueuedGang)
    assert (waits.reason.code, waits.reason.next_step) == ("no_matching_node", tool.way_out)
    (waits,) = place([wants], [without, having, node("c", labels=frozenset({tool.facet}))])
    assert isinstance(waits, QueuedGang)
    assert (waits.reason.next_step or "").startswith("ask for other resources.labels"), "of c it is the label"


def test_a_job_that_has_run_on_gpus_waits_for_one_beside_free_cpu_slots() -> None:
    ran = request("job", requirements=Requirements(device="cuda", has_run=True))
    (waits,) = place([ran], [node("c"), node("g", 1, device="cuda", free=0)])
    assert isinstance(waits, QueuedGang)
    assert waits.reason.text == (
        "needs 1 node with 1 free slot; the largest available node is g (0 free slots); it cannot use c (device cpu, and it has run on cuda)"
    )
    (waits,) = place([ran], [node("c")])
    assert isinstance(waits, QueuedGang)
    assert waits.reason.next_step == "wait for such a node, or go on with another device as a new job: paceline restore CHECKPOINT"
