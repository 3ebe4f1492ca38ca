"""How the tensors of a model are divided among servers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from paceline.distributed.protocol_errors import ProtocolError


def divide(sizes: Sequence[int], servers: int) -> list[range]:
    """Return the range of tensors of each server: contiguous, none empty, cut where the sum of `sizes` (bytes) comes closest to equal.

    Tensors stay whole, so that every optimizer updates them as one process would. So the largest tensor bounds how equal shards can be.
    Raises `ProtocolError` if there are fewer tensors than servers.
    """
    if not 1 <= servers <= len(sizes):
        raise ProtocolError(f"{servers} servers cannot share {len(sizes)} tensors, which stay whole; use 1 to {len(sizes)} servers")
    ends = list(accumulate(sizes))
    cuts = [0]
    for server in range(1, servers):
        goal = ends[-1] * server / servers
        candidates = range(cuts[-1] + 1, len(sizes) - (servers - server) + 1)
        cuts.append(min(candidates, key=lambda cut: (abs(ends[cut - 1] - goal), cut)))
    return [range(first, last) for first, last in zip(cuts, [*cuts[1:], len(sizes)], strict=True)]
