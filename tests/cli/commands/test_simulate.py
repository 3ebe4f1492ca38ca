"""`paceline simulate`: names, and what it refuses."""

from __future__ import annotations

import pytest

from paceline.cli.commands.simulate import PLATFORM, free_names, refuse_real
from paceline.cli.errors import UsageProblem
from paceline.cluster.simulation import machines


def test_names_that_are_taken_are_left_out() -> None:
    assert free_names("sim", 3, ["sim-001", "sim-003", "other"]) == ["sim-002", "sim-004", "sim-005"]


def test_real_nodes_are_not_mixed_with_simulated_ones() -> None:
    simulated = {"name": "sim-001", "platform": PLATFORM, "state": "ready"}
    gone = {"name": "old", "platform": "Linux", "state": "lost"}
    refuse_real([simulated, gone])
    with pytest.raises(UsageProblem, match="real nodes \\(box\\)"):
        refuse_real([simulated, {"name": "box", "platform": "Linux", "state": "ready"}])


def test_both_sides_call_a_simulated_node_the_same() -> None:
    assert PLATFORM == machines.PLATFORM
