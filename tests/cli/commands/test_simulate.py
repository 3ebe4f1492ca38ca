"""`paceline simulate`: names, and how simulated nodes are kept apart from real ones."""

from __future__ import annotations

import yaml

from paceline.cli.commands.simulate import ASKS, PLATFORM, free_names, real_nodes, what_taints_mean
from paceline.cluster.policy.requirements import Requirements, facets
from paceline.cluster.simulation import machines
from paceline.training.spec.job import JobSpec


def test_names_that_are_taken_are_left_out() -> None:
    assert free_names("sim", 3, ["sim-001", "sim-003", "other"]) == ["sim-002", "sim-004", "sim-005"]


def test_real_nodes_are_named() -> None:
    simulated = {"name": "sim-001", "platform": PLATFORM, "state": "ready"}
    gone = {"name": "old", "platform": "Linux", "state": "lost"}
    box = {"name": "box", "platform": "Linux", "state": "ready"}
    assert real_nodes([simulated, gone]) == []
    assert real_nodes([simulated, gone, box]) == ["box"]
    assert "real nodes (a, b, c, ...)" in what_taints_mean(["a", "b", "c", "d"])[0]


def test_what_a_job_is_told_to_say_places_it_on_simulated_nodes_alone() -> None:
    asking = JobSpec.model_validate({"name": "a", "script": {"path": "a.py"}} | yaml.safe_load(ASKS)).resources
    simulated = machines.SimulatedMachine("sim-001", 8, tainted=True).inventory("1")
    labels, taints = facets(simulated.labels), facets(simulated.taints)
    asks = Requirements(None, facets(asking.labels), frozenset(asking.tolerations))
    assert asks.obstacle("cuda", labels, taints) is None
    assert asks.obstacle("cuda", frozenset(), frozenset()) is not None
    assert Requirements(None, frozenset(), frozenset()).obstacle("cuda", labels, taints) is not None
    assert machines.SimulatedMachine("sim-001", 8).inventory("1").taints == {}


def test_both_sides_call_a_simulated_node_the_same() -> None:
    assert PLATFORM == machines.PLATFORM
