"""Which rank has which positions of a sequence."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from paceline.parallelism.tensor_context.sequence import Contiguous, HeadTail, SequenceDropout, SequenceShard, UnevenSequenceError


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_every_position_is_on_one_rank_and_the_work_is_even(degree: int) -> None:
    time = 12 * degree
    positions = [HeadTail(degree, rank).positions(6, torch.device("cpu")).flatten() for rank in range(degree)]
    assert torch.cat(positions).sort().values.tolist() == list(range(time))
    assert len({int(own.sum()) for own in positions}) == 1  # a position looks at all before it


def test_a_part_holds_the_values_of_its_positions() -> None:
    whole = torch.arange(24).expand(2, 24) + torch.tensor([[0], [100]])
    for rank in range(3):
        layout = HeadTail(3, rank)
        own = layout.local(whole).view(2, 2, -1)  # (chunks, batch, chunk)
        assert torch.equal(own[:, 0], layout.positions(4, whole.device))
        assert torch.equal(own[:, 1], own[:, 0] + 100)
        assert layout.global_shape((4, 4, 9)) == (2, 24, 9)


def test_every_position_predicts_the_token_after_it() -> None:
    windows = torch.arange(17).expand(2, 17)
    for rank in range(2):
        own = HeadTail(2, rank).local_windows(windows)
        assert own.shape == (4, 5)
        assert torch.equal(own[:, :-1], HeadTail(2, rank).local(windows[:, :-1]))
        assert torch.equal(own[:, 1:], own[:, :-1] + 1)


def test_a_sequence_that_does_not_divide_is_refused() -> None:
    with pytest.raises(UnevenSequenceError, match="20 tokens cannot be cut into 4 chunks whose length divides by 2; use 16 or 24"):
        HeadTail(2, 0, multiple=2).local(torch.zeros(1, 20))
    with pytest.raises(UnevenSequenceError, match=r"3 tokens .* use 4"):
        HeadTail(2, 0).local_windows(torch.zeros(1, 4))


def cuts(context: int, tensor: int, rank: int) -> list[SequenceShard]:
    return [HeadTail(context, rank // tensor, tensor), Contiguous(tensor, rank % tensor)]


@pytest.mark.parametrize(("context", "tensor"), [(1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_drop_what_the_whole_drops(context: int, tensor: int, dtype: torch.dtype) -> None:
    whole = torch.rand(3, 16, 5).to(dtype) + 1

    def cut(values: Tensor, rank: int) -> Tensor:
        for each in cuts(context, tensor, rank):
            values = each.local(values)
        return values

    torch.manual_seed(7)
    expected = nn.Dropout(0.3)(whole)
    for rank in range(context * tensor):
        torch.manual_seed(7)
        found = SequenceDropout(0.3, cuts(context, tensor, rank))(cut(whole, rank))
        assert torch.equal(found, cut(expected, rank))


def test_nothing_is_dropped_in_evaluation() -> None:
    hidden = torch.rand(1, 4, 2)
    assert SequenceDropout(0.9, [Contiguous(2, 0)]).eval()(hidden) is hidden
