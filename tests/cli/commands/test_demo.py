"""The gang of the demo: whatever is there."""

from __future__ import annotations

import pytest

from paceline.cli.api_types import Node, SlotUse
from paceline.cli.commands.demo import everything


def node(slots: int, device: str = "cuda", state: str = "ready") -> Node:
    return Node(id="N", name="n", state=state, device=device, slots=[SlotUse(index=index) for index in range(slots)], address="")


@pytest.mark.parametrize(
    ("nodes", "gang"),
    [
        ([node(1)], (1, 1)),
        ([node(8)], (1, 8)),
        ([node(1, "cpu"), node(1, "cpu")], (2, 1)),
        ([node(2), node(16, "cpu")], (1, 2)),  # GPUs where there are any
        ([node(8), node(4)], (2, 4)),
        ([node(8), node(4, state="cordoned")], (1, 8)),
        ([node(8)] * 100, (4, 8)),  # a rank has a sample at least
        ([node(64, "cpu")], (1, 32)),
        ([], (1, 1)),
    ],
)
def test_the_demo_trains_on_what_there_is(nodes: list[Node], gang: tuple[int, int]) -> None:
    assert everything(nodes) == {"nodes": gang[0], "slots_per_node": gang[1]}
