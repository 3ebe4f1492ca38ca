"""The estimated time of sums over replicas, by algorithm and compression. Worked out by hand."""

from __future__ import annotations

import pytest

from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.compression.options import CompressionOptions
from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.machines import Link, Machines
from paceline.parallelism.planning.memory import TrainingSetup
from paceline.parallelism.planning.sum_time import sum_seconds

ELEMENTS, LAYERS = 1_000_000, 4


def seconds(compression: CompressionOptions = CompressionOptions(), algorithm: Algorithm = "backend", slots: int = 2) -> float:
    machines = Machines(2, slots, 10**9, 1e9, within=Link(1e9, 0.0), between=Link(1e7, 1e-3))
    setup = TrainingSetup(Degrees(replicate=2 * slots), micro_batches=8, communication=CommunicationOptions(algorithm, compression))
    return sum_seconds(ELEMENTS, LAYERS, setup, machines)


def test_a_flat_ring_sends_everything_over_the_slow_link() -> None:
    assert seconds() == pytest.approx(2 * 3 * (1e-3 + 1e6 / 1e7))
    assert seconds(slots=1) == pytest.approx(2 * (1e-3 + 2e6 / 1e7))


def test_a_hierarchy_sends_each_byte_over_it_once() -> None:
    between = 2 * (1e-3 + 2 * 1e6 / 1e7)  # two ranks of a machine, with half the bytes each
    assert seconds(algorithm="hierarchical") == pytest.approx(2 * 2e6 / 1e9 + between)
    assert seconds(algorithm="hierarchical", slots=1) == seconds(slots=1), "there is nothing within a machine"


def test_compression_sends_less() -> None:
    assert seconds(CompressionOptions("bf16"), slots=1) == pytest.approx(2 * (1e-3 + 1e6 / 1e7))
    assert seconds(CompressionOptions("top_k", ratio=0.01), slots=1) == pytest.approx(1e-3 + 8e4 / 1e7)
    factor = 4 * 2 * 2000  # bytes: rank 2 of four matrices, each with the square root of 250,000 rows
    assert seconds(CompressionOptions("power_sgd", rank=2), slots=1) == pytest.approx(2 * 2 * (1e-3 + factor / 2 / 1e7))


def test_a_hierarchy_compresses_what_goes_between_machines() -> None:
    found = seconds(CompressionOptions("top_k", ratio=0.01), "hierarchical")
    assert found == pytest.approx(2 * 2e6 / 1e9 + 1e-3 + 2 * 4e4 / 1e7)
