"""The size of a job, in slots or in nodes, and the nodes that it may be on."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from paceline.training.schema.resources import Resources


def test_slots_and_nodes_are_two_ways_to_say_a_size() -> None:
    slots = Resources(slots=6, min_slots=2, max_slots=8)
    assert (slots.unit, slots.blocks, slots.slots_per_block, slots.world_size, slots.most_ranks) == ("slots", 6, 1, 6, 8)
    nodes = Resources(nodes=2, slots_per_node=4, max_nodes=3)
    assert (nodes.unit, nodes.blocks, nodes.slots_per_block, nodes.world_size, nodes.most_ranks) == ("nodes", 2, 4, 8, 12)
    assert slots.is_elastic
    assert nodes.is_elastic
    assert not Resources(slots=6).is_elastic


def test_what_was_written_out_is_read_back() -> None:
    for given in (Resources(slots=6, labels={"zone": "near"}, tolerations=("dedicated=vision",)), Resources(nodes=2, spread=True)):
        assert Resources.model_validate_json(given.model_dump_json()) == given


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"slots": 6, "nodes": 2}, "slots=6 leaves the choice of nodes to the scheduler, and nodes=2 makes one"),
        ({"slots": 6, "spread": True}, "slots=6 leaves the choice of nodes to the scheduler, and spread=true makes one"),
        ({"min_slots": 2}, "min_slots=2 goes with slots; set slots, or use min_nodes"),
        ({"slots": 2, "min_slots": 3}, "min_slots=3 is more than slots=2"),
        ({"slots": 2, "max_slots": 1}, "max_slots=1 is less than slots=2"),
        ({"labels": {"-x": "y"}}, "1 to 63 letters, digits"),
        ({"tolerations": ["=x"]}, "a taint's key, or key=value"),
        ({"labels": {"zone": "a\nb"}}, r"there is \\n, which cannot be printed, at place 1"),
        ({"tolerations": ["zone=\u202eb"]}, "cannot be printed"),
        ({"device": "tpu"}, "'cuda' or 'cpu'"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words.replace("(", r"\(")):
        Resources.model_validate(given)
