"""The performance model: what steps cost, and how ranks differ."""

from __future__ import annotations

import math
import random
from typing import Any

from paceline.cluster.simulation import step_times
from paceline.cluster.simulation.machines import H100
from paceline.monitoring.points import STEP_PARTS
from paceline.training.spec.job import JobSpec

GPT = {"kind": "gpt", "layers": 24, "heads": 16, "dim": 2048, "context": 2048, "vocab_size": 50304}


def spec(nodes: int = 4, **changes: Any) -> JobSpec:
    document = {
        "name": "gpt",
        "resources": {"nodes": nodes, "slots_per_node": 8},
        "model": GPT,
        "data": {"kind": "stdlib_text"},
        "precision": "bf16",
        "training": {"steps": 10, "global_batch_size": 512, "micro_batch_size": 4},
    }
    return JobSpec.model_validate(document | changes)


def test_twice_as_many_ranks_compute_half_as_long_and_communicate_more() -> None:
    few, many = (step_times.cost_of(spec(), ranks, 8, H100) for ranks in (16, 32))
    assert math.isclose(many.computing, few.computing / 2, rel_tol=0.05)
    assert many.sent["replicate"] > few.sent["replicate"]
    assert many.samples == few.samples == 512


def test_shards_take_less_memory_than_replicas() -> None:
    replicas = step_times.cost_of(spec(), 32, 8, H100)
    shards = step_times.cost_of(spec(parallelism={"strategy": "fsdp"}), 32, 8, H100)
    assert shards.memory_bytes < replicas.memory_bytes / 2
    assert [*shards.sent] == ["shard"]


def test_a_pipeline_has_a_bubble() -> None:
    assert 0 < (step_times.cost_of(spec(parallelism={"pipeline": 8}), 32, 8, H100).bubble or 0) < 0.5


def test_a_script_has_a_cost_though_nothing_is_known_of_it() -> None:
    script = JobSpec.model_validate({"name": "script", "script": {"path": "/train.py"}})
    assert step_times.typical_seconds(step_times.cost_of(script, 1, 1, H100)) > 1


def test_the_parts_of_every_rank_add_up_to_the_same_step() -> None:
    cost = step_times.cost_of(spec(), 32, 8, H100)
    done = step_times.gang_step(cost, step_times.speeds_of([f"node/{slot}" for slot in range(32)]), random.Random(1))
    for rank in done.ranks:
        assert math.isclose(sum(rank[part] for part in STEP_PARTS), rank["step_seconds"])
        assert math.isclose(rank["step_seconds"], done.seconds)


def test_a_straggler_waits_for_nobody_and_all_others_wait_for_it() -> None:
    cost = step_times.cost_of(spec(), 4, 4, H100)
    done = step_times.gang_step(cost, (1.0, 1.0, 1.4, 1.0), random.Random(1))
    waits = [rank["communication_seconds"] for rank in done.ranks]
    assert waits[2] == min(waits) == cost.communication
    assert min(waits[:2]) > 0.3 * cost.computing


def test_the_same_seed_gives_the_same_steps_and_the_same_cards() -> None:
    cost, places = step_times.cost_of(spec(), 8, 8, H100), [f"sim-001/{slot}" for slot in range(8)]
    one, other = (step_times.gang_step(cost, step_times.speeds_of(places), random.Random("a")) for _ in range(2))
    assert one == other
    assert step_times.gang_step(cost, step_times.speeds_of(places), random.Random("b")) != one


def test_about_one_card_in_a_hundred_straggles() -> None:
    speeds = step_times.speeds_of([f"0/sim-{node:03d}/{slot}" for node in range(250) for slot in range(8)])
    assert 5 <= sum(speed > 1.12 for speed in speeds) <= 40
