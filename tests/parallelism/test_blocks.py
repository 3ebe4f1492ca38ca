"""Which parts of a model are sharded by themselves."""

from __future__ import annotations

from torch import nn

from paceline.parallelism.blocks import blocks_of, self_contained, units


def layer() -> nn.Linear:
    return nn.Linear(3, 3, bias=False)


def test_blocks_are_the_members_of_lists_or_of_the_largest_sequential() -> None:
    layers = [layer() for _ in range(4)]
    listed = nn.ModuleDict({"in": layers[0], "blocks": nn.ModuleList([layers[1], nn.ModuleList([layers[2], nn.Tanh()])])})
    assert blocks_of(listed) == [layers[1], layers[2]]
    assert blocks_of(nn.Sequential(layers[0], nn.Tanh(), layers[3], layers[0])) == [layers[0], layers[3]]


def test_blocks_that_share_a_weight_or_a_layer_are_not_self_contained() -> None:
    first, second, last, shared = layer(), layer(), layer(), layer()
    last.weight = first.weight
    halves = [nn.Sequential(layer(), shared) for _ in range(2)]
    model = nn.Sequential(first, second, *halves, last)
    assert self_contained(blocks_of(model), model) == [second]


def test_a_block_may_share_within_itself_and_be_called_twice() -> None:
    inner = layer()
    block = nn.Sequential(inner, inner)
    model = nn.Sequential(block, layer(), block)
    assert self_contained(blocks_of(model), model) == blocks_of(model)


def test_units_have_at_least_so_many_parameters() -> None:
    blocks = [layer() for _ in range(5)]
    assert units(blocks, least=10) == [blocks[:2], blocks[2:4]]
