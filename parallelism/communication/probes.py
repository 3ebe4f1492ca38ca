"""Time sums of each kind over the links of this world, once when a gang starts: what they cost, and what the links are. Collective."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from paceline.distributed.collectives.reductions import WithinSum
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.process_group import Group
from paceline.distributed.reduction import BackendSum, GradientBucket, GradientPiece, Reduction
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.sum_cost import Links, SumCost, cost_of, link_of

ELEMENT_BYTES = 4
#: Rows and columns of the matrices that are summed: a small one, and one that grows by GROWTH until its sum takes LONG_ENOUGH, or it is as large as all
#: gradients. Many links let some megabytes pass at once before they keep to their rate.
SMALL, COLUMNS, FIRST_ROWS, GROWTH = (64, 64), 512, 256, 4
LONG_ENOUGH_SECONDS = 0.04
#: Times that each is summed. Of the small one the fastest counts, which nothing else has held up; of the others the last, which no full buffer helps.
SMALL_TIMES, TIMES = 5, 2
T = TypeVar("T")


def probe(
    group: Group,
    groups: ReductionGroups,
    choices: Sequence[ReductionChoice],
    options: CompressionOptions,
    device: torch.device,
    *,
    largest: int,
    machines: int,
) -> tuple[dict[ReductionChoice, SumCost], Links]:
    """Time a small and a large sum by each choice, and over each kind of link. All ranks get the same numbers: those of the slowest.

    `largest`: bytes of all gradients. `machines`: how many the ranks are on."""
    sums: dict[object, Reduction] = {
        each: reduction_for(each.algorithm, replace(options, compression=each.compression, dense_steps=0), groups) for each in choices
    }
    replicas, local, peers = groups.replicas.size, groups.local, groups.peers
    if not all(group.all_gather_object(local is not None and peers is not None)):  # replicas of another shard may lie otherwise
        local = peers = None
    if local is not None and peers is not None:
        sums |= {"within": WithinSum(local), "between": BackendSum(peers)}
    for each in sums.values():
        each.commit()  # the first step of a lossy sum in a hierarchy is exact: those behind it count
    small = _timed(group, sums, SMALL, device, SMALL_TIMES, min)
    large = _long_enough(group, sums, device, largest)
    costs = {key: cost_of((_bytes(SMALL), small[key]), large[key]) for key in sums}
    of_choices = {each: costs[each] for each in choices}
    if local is not None and peers is not None:
        beside = replicas // peers.size
        return of_choices, Links(link_of(costs["within"], beside), link_of(costs["between"], peers.size, beside))
    exact = next(of_choices[each] for each in choices if each.compression == "none" or each == choices[-1])
    link = link_of(exact, replicas)
    return of_choices, Links(between=link) if machines > 1 else Links(within=link)


def _long_enough(group: Group, sums: Mapping[T, Reduction], device: torch.device, largest: int) -> dict[T, tuple[int, float]]:
    """Return the bytes and the seconds of a sum that takes long enough, by each of `sums`."""
    found: dict[T, tuple[int, float]] = {}
    shape = (FIRST_ROWS, COLUMNS)
    while left := {key: reduction for key, reduction in sums.items() if key not in found}:
        for key, seconds in _timed(group, left, shape, device, TIMES, _last).items():
            if seconds >= LONG_ENOUGH_SECONDS or _bytes(shape) >= largest:
                found[key] = _bytes(shape), seconds
        shape = (GROWTH * shape[0], COLUMNS)
    return found


def _timed(
    group: Group,
    sums: Mapping[T, Reduction],
    shape: tuple[int, int],
    device: torch.device,
    times: int,
    of: Callable[[Sequence[float]], float],
) -> dict[T, float]:
    """Return the seconds of a sum of a matrix by each of `sums`, on the slowest rank. `of`: which of `times` count."""
    own = {key: of(_seconds(group, reduction, shape, device, times)) for key, reduction in sums.items()}
    everyones = group.all_gather_object(list(own.values()))
    return {key: max(each[place] for each in everyones) for place, key in enumerate(own)}


def _last(found: Sequence[float]) -> float:
    return found[-1]


def _seconds(group: Group, reduction: Reduction, shape: tuple[int, int], device: torch.device, times: int) -> list[float]:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)).reshape(-1).to(device)
    parameter = f"{shape[0]} x {shape[1]}"  # what is left out is kept by parameter, of which each has one size
    found = []
    for _ in range(times):
        bucket = GradientBucket(values.clone(), [GradientPiece(parameter, shape, 0, values.numel())], step=1)
        started = time.perf_counter()
        group.start_reduction(reduction, bucket).wait()
        if values.is_cuda:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
        reduction.commit()
    return found


def _bytes(shape: tuple[int, int]) -> int:
    return ELEMENT_BYTES * shape[0] * shape[1]
