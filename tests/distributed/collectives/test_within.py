"""Sums of a hierarchy within one machine by process groups, as GPUs have them: segments of any number of elements, here of ranks in one process."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.distributed.collectives.within import GroupWithin
from tests.distributed.collectives.rings import results


class Meeting:
    """What ranks in threads bring to a collective."""

    def __init__(self, size: int) -> None:
        self._brought: dict[str, dict[int, Tensor]] = {}
        self._size = size
        self._all_there = {name: threading.Barrier(size, timeout=20.0) for name in ("sum", "gather")}

    def of_all(self, name: str, rank: int, own: Tensor) -> list[Tensor]:
        self._brought.setdefault(name, {})[rank] = own
        self._all_there[name].wait()
        return [self._brought[name][each] for each in range(self._size)]


class ThreadGroup:
    """An `AxisGroup` of threads: as NCCL, it takes parts of one length alone."""

    def __init__(self, meeting: Meeting, rank: int, size: int) -> None:
        self._meeting, self.rank, self.size, self.ranks = meeting, rank, size, tuple(range(size))

    def reduce_scatter(self, output: Tensor, parts: Tensor) -> None:
        assert parts.numel() == self.size * output.numel()
        total = torch.stack(self._meeting.of_all("sum", self.rank, parts)).sum(0)
        output.copy_(total.view(self.size, -1)[self.rank])

    def all_gather(self, output: Tensor, part: Tensor) -> None:
        assert output.numel() == self.size * part.numel()
        output.copy_(torch.cat(self._meeting.of_all("gather", self.rank, part)))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("elements", [0, 1, 2, 7, 60])
def test_segments_are_the_sum_and_cover_everything_once(size: int, elements: int) -> None:
    values = [torch.arange(elements) * 10 + rank for rank in range(size)]
    expected = torch.stack(values).sum(0)
    meeting = Meeting(size)

    def run(rank: int) -> Any:
        group: Any = ThreadGroup(meeting, rank, size)
        within = GroupWithin(group)
        own = within.reduce_scatter(values[rank], 1)
        assert torch.equal(values[rank][own.first : own.last], expected[own.first : own.last])
        values[rank][: own.first] = values[rank][own.last :] = -1  # of no use
        within.all_gather(values[rank], 1)
        return own

    segments = results(size, run)
    assert all(torch.equal(each, expected) for each in values)
    covered = [index for segment in segments for index in range(*segment)]
    assert covered == list(range(elements))
