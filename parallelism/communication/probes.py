"""Time sums of each kind over the links of this world, once when a gang starts: what they cost, and what the links are. Collective."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch

from paceline.distributed.collectives.reductions import RingSum
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.process_group import Group
from paceline.distributed.reduction import BackendSum, GradientBucket, Piece, Reduction
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.parallelism.communication.choices import Choice, with_probe_options
from paceline.parallelism.communication.sum_cost import Links, SumCost, cost_of, link_of

ELEMENT_BYTES = 4
#: Rows and columns of the matrices that are summed. The widest is for links on which the wide one takes less than FAST_SECONDS: a timer's noise.
SMALL, WIDE, WIDEST = (64, 64), (512, 512), (2048, 1024)
FAST_SECONDS = 0.02
#: Times that each is summed, after once that is not counted; the median counts. The first bytes may pass a shaped link at once.
TIMES = 3
T = TypeVar("T")


def probe(
    group: Group, groups: ReductionGroups, choices: Sequence[Choice], options: CompressionOptions, device: torch.device, machines: int
) -> tuple[dict[Choice, SumCost], Links]:
    """Time a small and a large sum by each choice, and over each kind of link. All ranks get the same numbers: those of the slowest."""
    sums: dict[object, Reduction] = {each: reduction_for(each.algorithm, with_probe_options(options, each), groups) for each in choices}
    replicas, local, peers = groups.replicas.size, groups.local, groups.peers
    if local is not None and peers is not None:
        sums |= {"within": RingSum(local), "between": BackendSum(peers)}
    small, wide = _timed(group, sums, SMALL, device), _timed(group, sums, WIDE, device)
    large, shape = wide, WIDE
    if max(wide.values()) < FAST_SECONDS:
        large, shape = _timed(group, sums, WIDEST, device), WIDEST
    costs = {key: cost_of((_bytes(SMALL), small[key]), (_bytes(shape), large[key])) for key in sums}
    of_choices = {each: costs[each] for each in choices}
    if local is not None and peers is not None:
        beside = replicas // peers.size
        return of_choices, Links(link_of(costs["within"], beside), link_of(costs["between"], peers.size, beside))
    exact = next(of_choices[each] for each in choices if each.compression == "none" or each == choices[-1])
    link = link_of(exact, replicas)
    return of_choices, Links(between=link) if machines > 1 else Links(within=link)


def _timed(group: Group, sums: Mapping[T, Reduction], shape: tuple[int, int], device: torch.device) -> dict[T, float]:
    """Return the seconds of a sum of a matrix by each of `sums`, on the slowest rank."""
    own = {key: _seconds(group, reduction, shape, device) for key, reduction in sums.items()}
    everyones = group.all_gather_object(list(own.values()))
    return {key: max(each[place] for each in everyones) for place, key in enumerate(own)}


def _seconds(group: Group, reduction: Reduction, shape: tuple[int, int], device: torch.device) -> float:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)).reshape(-1).to(device)
    found = []
    for _ in range(TIMES + 1):
        bucket = GradientBucket(values.clone(), [Piece("probe", shape, 0, values.numel())], step=1)
        started = time.perf_counter()
        group.start_reduction(reduction, bucket).wait()
        if values.is_cuda:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
        reduction.commit()
    return statistics.median(found[1:])


def _bytes(shape: tuple[int, int]) -> int:
    return ELEMENT_BYTES * shape[0] * shape[1]
