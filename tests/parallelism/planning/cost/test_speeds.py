"""Speeds apart from the number of machines."""

from __future__ import annotations

import pytest

from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.cost.errors import UnknownDeviceError
from paceline.parallelism.planning.cost.speeds import of_cpu_slots, of_device
from paceline.parallelism.planning.memory import TrainingSetup
from tests.parallelism.planning.cost.machines import TRUTH, large


def test_ranks_are_on_one_machine_unless_something_else_is_said() -> None:
    setup = TrainingSetup(Degrees(replicate=4))
    assert TRUTH.on(setup).ranks_by_node == (4,)
    assert TRUTH.on(setup, (2, 2)).ranks_by_node == (2, 2)
    assert TRUTH.on(setup, (2, 2)).world_size == 4


def test_a_slower_network_is_felt_by_ranks_on_several_machines_only() -> None:
    shape, setup = large(4, 1), TrainingSetup(Degrees(replicate=4), micro_batches=4)
    near, far = TRUTH.predict(shape, setup), TRUTH.predict(shape, setup, (1, 1, 1, 1))
    assert near.time.by_axis["replicate"] != far.time.by_axis["replicate"]
    assert far.time.compute < near.time.compute  # a rank by itself has its machine to itself


def test_a_device_of_the_catalogue_has_its_own_rates() -> None:
    speeds = of_device("NVIDIA H100 80GB HBM3", ["bf16", "fp32"])
    assert speeds.flops_per_second["bf16"] == pytest.approx(0.4 * 989.5e12)
    assert speeds.machines.overlaps
    with pytest.raises(UnknownDeviceError):
        of_device("a card", ["bf16"])


def test_cpu_slots_overlap_nothing() -> None:
    assert not of_cpu_slots(["fp32"]).machines.overlaps
