"""Who sends which part to whom; that whole tensors come of it is seen in `test_cross_plan.py`."""

from __future__ import annotations

import torch

from paceline.distributed.solo_group import SoloGroup
from paceline.training.saving.assembly import Region, TensorChunk, pieces, whole_tensors

UPPER, LOWER, NOTHING = Region((0, 0), (2, 3)), Region((2, 0), (1, 3)), Region((3, 0), (0, 3))


def test_of_replicas_the_owner_uses_its_own_part_and_else_the_first_ranks() -> None:
    held = [{"weight": UPPER}, {"weight": LOWER}, {"weight": UPPER}, {"weight": LOWER}]
    assert pieces(held, {"weight": 2}) == [TensorChunk("weight", 0, 2, 2, UPPER), TensorChunk("weight", 0, 1, 2, LOWER)]


def test_nobody_sends_nothing() -> None:
    held = [{"b": UPPER, "a": UPPER}, {"b": LOWER, "a": LOWER}, {"b": NOTHING, "a": NOTHING}]
    found = pieces(held, {"a": 2, "b": 0})
    assert found == [
        TensorChunk("a", 0, 0, 2, UPPER),
        TensorChunk("a", 0, 1, 2, LOWER),
        TensorChunk("b", 1, 0, 0, UPPER),
        TensorChunk("b", 1, 1, 0, LOWER),
    ]


def test_parts_of_what_some_ranks_hold_come_from_those() -> None:
    """As of stages whose matrices are cut."""
    held = [{"a": UPPER}, {"a": LOWER}, {"b": UPPER}, {"b": LOWER}]
    assert pieces(held, {"a": 1, "b": 2}) == [
        TensorChunk("a", 0, 1, 1, LOWER),
        TensorChunk("a", 0, 0, 1, UPPER),
        TensorChunk("b", 1, 2, 2, UPPER),
        TensorChunk("b", 1, 3, 2, LOWER),
    ]


def test_what_is_whole_already_stays_where_it_is() -> None:
    tensors = {"a": torch.ones(2), "b": torch.zeros(2)}
    assert whole_tensors(tensors, {"a": 0, "b": 0}, SoloGroup()) == tensors
    assert pieces([], {}) == []
