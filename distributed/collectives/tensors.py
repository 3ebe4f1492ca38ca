"""Vectors that are tensors on the host, and a ring over a torch process group."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.collectives.messages import HEADER_NUMBERS, RingHeader, RingMessage, read_header, require

#: The data types that are summed, each by its number in headers.
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.complex64,
    torch.complex128,
)
#: A header's tag is even, its payload's the odd one after it; no two messages under way have the same.
_TAGS = 1 << 14


class TensorValues:
    """The elements of a tensor on the host, which a ring changes in place: any shape and layout."""

    def __init__(self, tensor: Tensor) -> None:
        """Raises ValueError for a tensor on a GPU, or of a data type that is not summed."""
        if tensor.device.type != "cpu":
            raise ValueError(f"a ring sums tensors on the host, not on {tensor.device}; NCCL has rings of its own")
        if tensor.dtype not in DTYPES:
            raise ValueError(f"a ring does not sum {tensor.dtype}; it sums {', '.join(map(str, DTYPES))}")
        self.element, self.itemsize = DTYPES.index(tensor.dtype), tensor.element_size()
        self._tensor = tensor
        # A tensor of another layout, or that is a lazy conjugate, is summed as a row-major copy.
        self._flat = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
        self._bytes = self._flat.view(torch.uint8).numpy().data if self._flat.numel() else memoryview(bytearray())
        self._rooms: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return self._flat.numel()

    def part(self, first: int, last: int) -> memoryview:
        return self._bytes[first * self.itemsize : last * self.itemsize]

    def scratch(self, place: int, elements: int) -> memoryview:
        length = elements * self.itemsize
        if place not in self._rooms or self._rooms[place].numel() < length:
            self._rooms[place] = torch.empty(length, dtype=torch.uint8)
        return self._rooms[place].numpy().data[:length]

    def add(self, first: int, last: int, addend: memoryview) -> None:
        if len(addend):
            self._flat[first:last].add_(torch.frombuffer(addend, dtype=self._flat.dtype))

    def write_back(self) -> None:
        """Copy the sum into the tensor, where it was summed as a copy."""
        if self._flat.untyped_storage().data_ptr() != self._tensor.untyped_storage().data_ptr():
            self._tensor.detach().copy_(self._flat.view(self._tensor.shape))


class GroupTransport:
    """The neighbours of this rank in a torch process group. Both messages of a move are awaited from its start."""

    def __init__(self, group: AxisGroup, order: tuple[int, ...]) -> None:
        """`order`: the world ranks in the order of the ring."""
        position = order.index(group.ranks[group.rank])
        self._group = group
        self._next, self._before = order[(position + 1) % len(order)], order[position - 1]
        self._started = 0

    def start(self, outgoing: RingMessage, expected: RingHeader, room: memoryview) -> Callable[[], None]:
        tag = 2 * (self._started % _TAGS)
        self._started += 1
        found = torch.empty(HEADER_NUMBERS, dtype=torch.int64)
        sends = [(torch.tensor(outgoing.header.numbers()), tag), *_payload(outgoing.payload, tag + 1)]
        wait = self._group.start_exchange(sends, self._next, [(found, tag), *_payload(room, tag + 1)], self._before)

        def finish() -> None:
            wait()
            require(read_header(found.tolist()), expected)

        return finish

    def close(self) -> None:
        """Do nothing: a rank that fails leaves the generation, and that frees the others."""


def _payload(content: memoryview, tag: int) -> list[tuple[Tensor, int]]:
    return [(torch.frombuffer(content, dtype=torch.uint8), tag)] if len(content) else []
