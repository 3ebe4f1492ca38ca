"""What a node offers and is labelled with."""

from __future__ import annotations

import pytest

from paceline.api.services.specs.node_facets import card_of
from paceline.db.models.nodes import NodeRow


@pytest.mark.parametrize(
    ("device", "gpus", "slot", "card"), [("cpu", [], 0, None), ("cuda", [{"index": 2}, {"index": 7}], 1, 7), ("cuda", [], 3, 3)]
)
def test_a_slot_is_the_card_that_the_node_offers_for_it(device: str, gpus: list[dict[str, int]], slot: int, card: int | None) -> None:
    assert card_of(NodeRow(device=device, inventory={"gpus": gpus}), slot) == card
