from __future__ import annotations

import torch

from paceline.distributed.compression.residuals import Residuals, deal_out
from paceline.distributed.reduction import GradientPiece

WHOLE = GradientPiece("w", (2, 5), 0, 10)
HALVES = [GradientPiece("w", (2, 5), 0, 5), GradientPiece("w", (2, 5), 5, 5, first=5)]


def test_what_was_put_counts_once_it_is_committed() -> None:
    residuals = Residuals()
    residuals.put(torch.ones(10), [WHOLE])
    assert residuals.by_parameter() == {}
    residuals.put(torch.full((10,), 2.0), [WHOLE])
    residuals.commit()
    values = torch.zeros(10)
    residuals.add_to(values, [WHOLE])
    assert values.tolist() == [2.0] * 10


def test_a_parameter_of_which_a_part_was_asked_for_is_whole_all_the_same() -> None:
    residuals = Residuals()
    residuals.load({"w": torch.arange(10.0)})
    values = torch.zeros(5)
    residuals.add_to(values, HALVES[1:])
    assert values.tolist() == [5, 6, 7, 8, 9]
    assert residuals.by_parameter()["w"].tolist() == list(range(10))
    residuals.put(torch.zeros(5), HALVES[1:])
    residuals.commit()
    assert residuals.by_parameter()["w"].tolist() == [0, 1, 2, 3, 4, 0, 0, 0, 0, 0]


def test_what_was_left_out_is_added_once_where_buckets_are_divided_otherwise_after_a_step() -> None:
    residuals = Residuals()
    residuals.load({"w": torch.tensor([0.0, 0, 5, 5, 5, 5, 0, 0, 0, 0])})
    before, after = GradientPiece("w", (2, 5), 0, 4), GradientPiece("w", (2, 5), 0, 4, first=2)
    first, second = torch.zeros(4), torch.zeros(4)
    residuals.add_to(first, [before])
    residuals.put(torch.ones(4), [before])
    residuals.commit()
    residuals.add_to(second, [after])
    assert (first.tolist(), second.tolist()) == ([0, 0, 5, 5], [1, 1, 5, 5])
    residuals.put(torch.zeros(4), [after])
    residuals.commit()
    assert residuals.by_parameter()["w"].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]


def test_what_was_told_stays_as_it_was_told() -> None:
    residuals = Residuals()
    residuals.put(torch.ones(5), HALVES[:1])
    residuals.commit()
    told = residuals.by_parameter()["w"]
    residuals.put(torch.full((5,), 2.0), HALVES[:1])
    residuals.commit()
    assert told.tolist() == [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]


def test_loading_adds_to_what_is_there() -> None:
    residuals = Residuals()
    residuals.put(torch.ones(10), [WHOLE])
    residuals.commit()
    residuals.load({"w": torch.ones(10), "v": torch.ones(3)})
    assert {name: part.tolist() for name, part in residuals.by_parameter().items()} == {"w": [2.0] * 10, "v": [1.0] * 3}


def test_the_sum_stays_whatever_the_number_of_ranks() -> None:
    held = [{"w": torch.full((10,), float(rank))} for rank in range(5)]
    for ranks in range(1, 8):
        dealt = [deal_out(held, ranks, rank) for rank in range(ranks)]
        assert sum(float(each["w"].sum()) for each in dealt if each) == 100.0
