from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paceline.api.services.experiments import slot_use
from paceline.api.services.experiments.metric_totals import MetricTotals
from paceline.api.services.experiments.slot_use import TrialSlotUse
from paceline.api.services.experiments.strategies import strategy_word
from paceline.cluster.history.lineage import Line
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories.metric_columns import StoredBucket
from paceline.db.repositories.trial_slots import GenerationSpan, HeldSlot
from paceline.monitoring.rollup import Bucket, group

START = datetime(2026, 11, 25, tzinfo=UTC)
HOUR = timedelta(hours=1)


def node(name: str, host: str | None = None, device: str = "cpu") -> NodeRow:
    return NodeRow(id=name, name=name, device=device, inventory={"hostname": host, "gpus": [{"index": 3}, {"index": 7}]} if host else None)


def use(**changes: Any) -> TrialSlotUse:
    generations = {"a": [GenerationSpan("a", 1, 2, 0, START, START + HOUR), GenerationSpan("a", 2, 2, 50, START + 5 * HOUR, None)]}
    slots = {"a": [HeldSlot("a", 2, rank, name, 0, None) for rank, name in enumerate(("m", "n", "n2"))]}
    nodes = {each.id: each for each in (node("m"), node("n", "host"), node("n2", "host"))}
    document: dict[str, Any] = {"now": START + 7 * HOUR, "generations": generations, "slots": slots, "nodes": nodes, "energy_joules": {}}
    return TrialSlotUse(**(document | changes))


def test_slots_are_counted_while_they_are_held() -> None:
    assert use().held_seconds("a") == 3 * 3600, "the pause between the generations holds none"
    assert use().slot_hours("a") == 1 * 2 + 2 * 3, "one of the second generation is a spare"
    assert (use().slot_hours("b"), use().machines("b")) == (0, None)


def test_agents_on_one_host_are_one_machine() -> None:
    assert use().machines("a") == 2


def test_a_card_is_held_for_as_long_as_its_rank_keeps_it() -> None:
    nodes = {"g": node("g", "host", "cuda"), "c": node("c", "other")}
    held = [HeldSlot("a", 1, 0, "g", 1, 7), HeldSlot("a", 2, 0, "g", 1, 7), HeldSlot("a", 2, 1, "c", 0, None)]
    found = slot_use.card_holdings_of(held, use().generations["a"], nodes, START + 7 * HOUR)
    assert [(each.card, each.generation, each.seconds) for each in found] == [(7, 1, 3600), (7, 2, 2 * 3600)], "the pause is not held"


def buckets(name: str, generation: int, steps: range, value: float, rank: int = 0) -> list[StoredBucket]:
    return [
        StoredBucket(name, rank, generation, number, each)
        for number, each in group(((step, 0.0, value) for step in steps), 1_000_000).items()
    ]


def test_time_in_steps_that_were_lost_is_of_no_use() -> None:
    stored = buckets("step_seconds", 1, range(1, 11), 1.0) + buckets("step_seconds", 2, range(9, 21), 1.0)
    assert slot_use.useful_seconds(stored, [Line(1, 1, 8), Line(2, 9, 20)]) == pytest.approx(20)
    assert slot_use.useful_seconds([], [Line(1, 1, 8)]) == 0


def test_totals_of_all_steps() -> None:
    totals = MetricTotals(
        [
            *buckets("peak_memory_bytes", 1, range(1, 11), 5.0),
            *buckets("peak_memory_bytes", 1, range(1, 11), 7.0, rank=1),
            *buckets("replicate_sent_bytes", 1, range(1, 11), 2.0),
            *buckets("replicate_sent_bytes", 1, range(1, 11), 1.0, rank=1),
            *buckets("shard_sent_bytes", 1, range(1, 11), 3.0, rank=1),
            *buckets("loss", 1, range(1, 11), 0.5),
            *buckets("loss", 2, range(8, 21), 0.75),
        ]
    )
    assert totals.highest("peak_memory_bytes") == 7.0
    assert totals.most_sent(["replicate_sent_bytes", "shard_sent_bytes"]) == 4.0, "of the busiest rank, along all axes"
    assert (totals.final("loss"), totals.highest("loss")) == (0.75, 0.75)
    assert (totals.count("loss"), totals.last_step("loss"), totals.newest_steps("loss")) == (23, 20, {1: 10, 2: 20})
    assert MetricTotals().most_sent(["loss"]) is None


def test_values_that_are_no_numbers_are_unknown() -> None:
    none = MetricTotals(
        [StoredBucket("loss", 0, 1, 0, Bucket(count=1, nan_count=1)), StoredBucket("lr", 0, 1, 0, Bucket(count=1, maximum=float("inf")))]
    )
    assert (none.final("loss"), none.highest("lr"), none.final("gone")) == (None, None, None)


def test_a_strategy_in_a_word() -> None:
    assert strategy_word({"strategy": "fsdp", "tensor": 2, "pipeline": 1}, 4) == "fsdp, tensor 2"
    assert (strategy_word({"strategy": "ddp"}, 1), strategy_word(None, 2)) == ("single", "ddp")
