"""Tensors of every data type and layout over a ring: the sum, the same bits on every rank, and nothing else changed."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as some
from torch import Tensor

from paceline.distributed.collectives.queues import ring_of_queues
from paceline.distributed.collectives.ring import CHUNK_BYTES, DEPTH
from paceline.distributed.collectives.tensors import DTYPES, TensorValues
from tests.distributed.collectives.rings import results, ring_of_sockets, rings

LAYOUTS = {
    "row-major": lambda made: made,
    "transposed": lambda made: made.t(),
    "every second column": lambda made: made[:, ::2],
    "turned around and expanded": lambda made: made.t()[1:].unflatten(0, (-1, 1)),
    "channels last": lambda made: made.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
}


def drawn(dtype: torch.dtype, seed: int, shape: tuple[int, ...] = (6, 4)) -> Tensor:
    """Small whole numbers, whose sums are exact in every data type."""
    made = torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype) * (1 + 2j) if dtype.is_complex else made.to(dtype)


def all_reduced(tensors: list[Tensor]) -> None:
    found = rings(ring_of_queues(len(tensors), 20.0), chunk_bytes=16)

    def run(position: int) -> None:
        values = TensorValues(tensors[position])
        found[position].all_reduce(values, 1)
        values.write_back()

    results(len(tensors), run)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_every_data_type(dtype: torch.dtype, layout: str) -> None:
    whole = [drawn(dtype, seed) for seed in range(3)]
    views = [LAYOUTS[layout](each) for each in whole]
    expected = torch.stack([each.clone() for each in views]).sum(0, dtype=dtype)
    all_reduced(views)
    assert all(torch.equal(each, expected) for each in views)


def test_ranks_of_two_layouts_have_the_sum_too() -> None:
    """gloo adds their memory as it lies, and says nothing."""
    one, other = drawn(torch.float32, 1), drawn(torch.float32, 2, (4, 6)).t()
    expected = one + other
    all_reduced([one, other])
    assert torch.equal(one, expected)
    assert torch.equal(other, expected)


def test_elements_beside_a_view_stay_as_they_are() -> None:
    whole = [drawn(torch.float32, seed) for seed in range(2)]
    before = [each.clone() for each in whole]
    all_reduced([each[:, ::2] for each in whole])
    assert all(torch.equal(each[:, 1::2], was[:, 1::2]) for each, was in zip(whole, before, strict=True))


@settings(max_examples=40, deadline=None)
@given(size=some.integers(1, 9), length=some.integers(0, 200), seed=some.integers(0, 1 << 16))
def test_rounded_sums_are_the_same_to_the_last_bit_on_every_rank(size: int, length: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(length, generator=draw) * 10.0 ** (rank % 5) for rank in range(size)]
    exact = torch.stack([each.double() for each in tensors]).sum(0)
    all_reduced(tensors)
    assert all(torch.equal(each, tensors[0]) for each in tensors)
    torch.testing.assert_close(tensors[0].double(), exact, rtol=1e-4, atol=1e-3)


def test_nan_and_infinity_reach_every_rank() -> None:
    tensors = [torch.ones(10) for _ in range(3)]
    tensors[1][2], tensors[2][7] = float("nan"), float("inf")
    all_reduced(tensors)
    assert all(bool(each[2].isnan()) and bool(each[7].isinf()) for each in tensors)


def test_a_lazy_conjugate_is_summed_as_what_it_means() -> None:
    made = [drawn(torch.complex64, seed) for seed in range(2)]
    expected = made[0].conj() + made[1].conj()
    views = [each.conj() for each in made]
    all_reduced(views)
    assert torch.equal(views[0], expected)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [(torch.zeros(2, dtype=torch.bool), "does not sum torch.bool; it sums torch.float32"), (torch.zeros(2, device="meta"), "not on meta")],
)
def test_what_cannot_be_summed_is_refused(tensor: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TensorValues(tensor)


class ShortSocket(socket.socket):
    """Takes a part of each message at once, as a socket does whose time is up, or that a signal interrupts."""

    most = 1

    def sendmsg(self, buffers: Any, *_: Any) -> int:
        return self.send(b"".join(buffers)[: self.most])


@settings(max_examples=4, deadline=None)
@given(
    size=some.integers(2, 3),
    elements=some.integers(0, 3 * CHUNK_BYTES),
    send_buffer=some.sampled_from([1 << 15, 1 << 17]),
    most=some.integers(1, 2 * CHUNK_BYTES),
)
@example(size=2, elements=(32 << 20) // 4, send_buffer=1 << 17, most=CHUNK_BYTES + 1)  # 32 MiB
@example(size=2, elements=CHUNK_BYTES, send_buffer=1 << 15, most=3)  # within the header
def test_huge_tensors_over_tcp_in_chunks_of_the_default_size(size: int, elements: int, send_buffer: int, most: int) -> None:
    """Chunks are many times what a socket takes at once, and a message leaves in pieces."""
    values = [
        torch.randint(-1000, 1000, (elements,), dtype=torch.int32, generator=torch.Generator().manual_seed(rank)) for rank in range(size)
    ]
    expected = torch.stack(values).sum(0, dtype=torch.int32)
    with ring_of_sockets(size, send_buffer) as transports:
        for each in transports:
            each._to_next = ShortSocket(fileno=each._to_next.detach())
            each._to_next.most = most
        found = rings(transports, chunk_bytes=CHUNK_BYTES, depth=DEPTH)
        results(size, lambda position: found[position].all_reduce(TensorValues(values[position]), 1))
    assert all(torch.equal(each, expected) for each in values)
