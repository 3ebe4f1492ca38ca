"""Vectors of plain Python numbers: the ring without torch."""

from __future__ import annotations

from array import array
from typing import Any


class ArrayValues:
    """The elements of an `array`, which a ring changes in place."""

    def __init__(self, numbers: array[Any]) -> None:
        self.numbers, self.itemsize, self.element = numbers, numbers.itemsize, ord(numbers.typecode)
        self._bytes = memoryview(numbers).cast("B")
        self._rooms: dict[int, bytearray] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, first: int, last: int) -> memoryview:
        return self._bytes[first * self.itemsize : last * self.itemsize]

    def scratch(self, place: int, elements: int) -> memoryview:
        length = elements * self.itemsize
        if len(self._rooms.get(place, b"")) < length:
            self._rooms[place] = bytearray(length)
        return memoryview(self._rooms.get(place, bytearray()))[:length]

    def add(self, first: int, last: int, addend: memoryview) -> None:
        for index, number in zip(range(first, last), array(self.numbers.typecode, bytes(addend)), strict=True):
            self.numbers[index] += number
