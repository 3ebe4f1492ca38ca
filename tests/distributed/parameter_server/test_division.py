"""Tensors are divided among servers: all of them, in order, each server at least one, and about equally many bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paceline.distributed.parameter_server.division import divide
from paceline.distributed.protocol_errors import ProtocolError

SIZES = some.lists(some.integers(0, 1000), min_size=1, max_size=30)


@given(SIZES, some.data())
def test_every_tensor_has_one_server_and_every_server_has_one(sizes: list[int], data: some.DataObject) -> None:
    servers = data.draw(some.integers(1, len(sizes)))
    parts = divide(sizes, servers)
    assert [index for part in parts for index in part] == list(range(len(sizes)))
    assert len(parts) == servers
    assert all(parts)


@given(SIZES, some.integers(1, 8))
def test_no_shard_exceeds_its_share_by_more_than_the_largest_tensor(sizes: list[int], servers: int) -> None:
    if servers > len(sizes):
        return
    shares = [sum(sizes[index] for index in part) for part in divide([size + 1 for size in sizes], servers)]
    assert max(shares) <= (sum(sizes) + len(sizes)) / servers + max(sizes) + 1


def test_equal_tensors_are_divided_equally() -> None:
    assert divide([5] * 12, 4) == [range(3), range(3, 6), range(6, 9), range(9, 12)]


@pytest.mark.parametrize("servers", [0, 4])
def test_too_many_servers_are_refused_with_the_limit(servers: int) -> None:
    with pytest.raises(ProtocolError, match=f"{servers} servers cannot share 3 tensors, which stay whole; use 1 to 3 servers"):
        divide([1, 2, 3], servers)
