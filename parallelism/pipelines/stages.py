"""Partition a chain of units into pipeline stages, so that the slowest stage is as fast as possible. Pure and torch-free."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import accumulate, count, groupby, pairwise

from paceline.parallelism.model_shape import MASTER_BYTES, Layer


class TooFewUnitsError(ValueError):
    """There are more stages than units."""


def partition_units(costs: Sequence[float], stages: int) -> tuple[range, ...]:
    """Return the units of each stage, in order; every stage has at least one. Raises `TooFewUnitsError`.

    `costs`: the cost of each unit, in any unit of measure, not negative. The dynamic programme for linear partitions (Skiena, The
    Algorithm Design Manual, 2020, 10.7), with O(units^2 * stages) steps.
    """
    if stages > len(costs):
        raise TooFewUnitsError(
            f"{stages} pipeline stages, but the model has {len(costs)} units to put into them; use {len(costs)} or fewer"
        )
    before = [0.0, *accumulate(costs)]
    # By the number of units that are cut already: the cost of the slowest stage, and where each begins.
    best: dict[int, tuple[float, tuple[int, ...]]] = {end: (before[end], (0,)) for end in range(1, len(before))}
    for stage in range(1, stages):
        best = {
            end: min((max(best[start][0], before[end] - before[start]), (*best[start][1], start)) for start in range(stage, end))
            for end in range(stage + 1, len(before))
        }
    _, starts = best[len(costs)]
    return tuple(range(start, end) for start, end in pairwise((*starts, len(costs))))


def chain_of(layers: Sequence[Layer]) -> list[tuple[Layer, ...]]:
    """Group layers into the units of the model, which stages are made of.

    A layer without parameters belongs to the unit before it, and such layers at the beginning belong to the first unit.
    """
    runs: list[list[Layer]] = [[]]
    for layer in layers:
        if has_parameters(layer) and any(map(has_parameters, runs[-1])):
            runs.append([])
        runs[-1].append(layer)
    return [tuple(run) for run in runs]


def has_parameters(layer: Layer) -> bool:
    return layer.parameters + layer.borrowed > 0


def costs_of(layers: Sequence[Layer]) -> list[float]:
    """Return the cost of each unit: a sample's operations in a forward pass, and one for each output element, so that an embedding is not
    free.
    """
    outputs = [after.input / MASTER_BYTES for after in layers[1:]]
    costs = iter([layer.flops + output for layer, output in zip(layers, [*outputs, 0.0], strict=True)])
    return [sum(next(costs) for _ in unit) for unit in chain_of(layers)]


@functools.lru_cache(maxsize=256)
def partition_layers(layers: tuple[Layer, ...], stages: int) -> tuple[tuple[Layer, ...], ...]:
    """Return the layers of each stage, in order."""
    units = chain_of(layers)
    return tuple(
        tuple(layer for unit in units[each.start : each.stop] for layer in unit) for each in partition_units(costs_of(layers), stages)
    )


def describe_stages(stages: Sequence[Sequence[Layer]]) -> list[str]:
    """Return what each stage has, in words, such as `the embedding, blocks 0 to 3`."""
    numbers = count()
    return [
        ", ".join(name for is_block, run in groupby(stage, key=_is_block) for name in _names(is_block, list(run), numbers))
        for stage in stages
    ]


def _is_block(layer: Layer) -> bool:
    return layer.is_block


def _names(are_blocks: bool, layers: Sequence[Layer], numbers: Iterator[int]) -> list[str]:
    if not are_blocks:
        return [layer.name for layer in layers]
    first, *others = [next(numbers) for _ in layers]
    return [f"blocks {first} to {others[-1]}" if others else f"block {first}"]
