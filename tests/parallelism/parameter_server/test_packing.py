"""Tensors of any kind survive a buffer of bytes to the last bit, and equal tensors make equal bytes."""

from __future__ import annotations

import torch

from paceline.parallelism.parameter_server.packing import ALIGNMENT, ShardLayout


def tensors() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [
        torch.randn(3, 5, generator=draw),
        torch.tensor(7),
        torch.randn(4, 2, generator=draw).t(),  # not row-major
        torch.randn(3, generator=draw, dtype=torch.float64),
        torch.randn(5, generator=draw).bfloat16(),
        torch.empty(0, 3),
        torch.tensor([True, False, True]),
        torch.randn(2, 3, 4, 4, generator=draw).contiguous(memory_format=torch.channels_last),
    ]


def test_every_data_type_shape_and_layout_comes_out_as_it_went_in() -> None:
    layout = ShardLayout(tensors())
    buffer = layout.pack(tensors(), layout.empty())
    assert layout.size % ALIGNMENT == 0
    for found, expected in zip(layout.views(buffer.clone()), tensors(), strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
        assert found.is_contiguous()


def test_equal_tensors_are_equal_bytes_whatever_the_buffer_held_before() -> None:
    layout = ShardLayout(tensors())
    first, second = layout.pack(tensors(), layout.empty()), layout.empty()
    layout.pack([torch.ones_like(tensor) for tensor in tensors()], second)
    assert torch.equal(layout.pack(tensors(), second), first)
