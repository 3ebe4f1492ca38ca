"""The plan that `auto` chooses, and what it says about it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.parallelism.model_shape import CUDA, ModelShape, NumberFormats
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.auto import Candidate, PlanRequest, SupportedPlans, all_degrees, budget_of, choose, setups
from paceline.parallelism.planning.machines import Link, Machines, axis_link
from paceline.parallelism.planning.memory import RankMemory, TrainingSetup, memory
from paceline.parallelism.planning.step_time import step_time
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.shape import shape as gpt_shape
from tests.parallelism.planning.shapes import decoder

AXES = ("replicate", "shard", "tensor", "pipeline", "context")
EVERYTHING = SupportedPlans(AXES, ("none", "selective", "full"))
DATA = SupportedPlans(("replicate", "shard"), ("none", "full"))
WANTED = PlanRequest(decoder(), global_batch_size=16)
NODE = Machines(
    nodes=1,
    slots_per_node=4,
    memory_bytes=10**6,
    flops_per_second=1e8,
    within=Link(1e9, 1e-6),
    between=Link(1e8, 1e-5),
    layer_overhead_seconds=1e-5,
)

machines = st.builds(
    Machines,
    nodes=st.sampled_from([1, 2]),
    slots_per_node=st.sampled_from([1, 2, 4]),
    memory_bytes=st.integers(2_000, 200_000),
    flops_per_second=st.floats(1e6, 1e12),
    within=st.builds(Link, st.floats(1e6, 1e12), st.floats(0, 1e-3)),
    between=st.builds(Link, st.floats(1e6, 1e12), st.floats(0, 1e-3)),
    overlaps=st.booleans(),
    memory_bytes_per_second=st.floats(1e6, 1e12),
)
wanted = st.builds(
    PlanRequest, st.builds(decoder, st.integers(1, 4), st.booleans()), st.integers(8, 12), precision=st.sampled_from(["fp32", "bf16"])
)
supported = st.sampled_from([EVERYTHING, DATA, SupportedPlans()])


def needs(wanted: PlanRequest, setup: TrainingSetup) -> int:
    return memory(wanted.shape, setup).total


@settings(max_examples=30, deadline=None)
@given(wanted, machines, supported)
def test_what_is_chosen_fits_and_is_the_fastest_that_does(wanted: PlanRequest, machines: Machines, supported: SupportedPlans) -> None:
    """Beside trying every plan, with its memory and its time."""
    choice, budget = choose(wanted, machines, supported), budget_of(machines)
    fitting = [each for each in setups(wanted, machines, supported) if needs(wanted, each) <= budget]
    if choice.best is None:
        assert not fitting
    else:
        assert needs(wanted, choice.best.setup) == choice.best.memory.total <= budget
        assert choice.best.time.total == min(step_time(wanted.shape, each, machines).total for each in fitting)


@settings(max_examples=30, deadline=None)
@given(wanted, machines, supported)
def test_every_way_to_share_out_the_world_is_accounted_for(wanted: PlanRequest, machines: Machines, supported: SupportedPlans) -> None:
    choice = choose(wanted, machines, supported)
    told = [each.candidate.setup for each in choice.rejected] + ([choice.best.setup] if choice.best else [])
    assert {each.degrees for each in told} == {each.degrees for each in setups(wanted, machines, supported)}
    assert len({(each.degrees, each.activation_checkpointing) for each in told}) == len(told)


@settings(max_examples=30, deadline=None)
@given(wanted, machines, supported, st.integers(1, 10**6))
def test_more_memory_is_never_slower(wanted: PlanRequest, machines: Machines, supported: SupportedPlans, more: int) -> None:
    before = choose(wanted, machines, supported).best
    after = choose(wanted, replace(machines, memory_bytes=machines.memory_bytes + more), supported).best
    if before is not None:
        assert after is not None
        assert after.time.total <= before.time.total


@settings(max_examples=30, deadline=None)
@given(wanted, machines, supported)
def test_every_plan_is_one_that_can_run(wanted: PlanRequest, machines: Machines, supported: SupportedPlans) -> None:
    for setup in setups(wanted, machines, supported):
        degrees = setup.degrees
        assert degrees.world_size == machines.world_size
        assert all(getattr(degrees, axis) == 1 for axis in AXES if axis not in supported.axes)
        assert setup.activation_checkpointing in supported.activation_checkpointing
        assert setup.micro_batches >= degrees.replicate * degrees.shard
        assert wanted.shape.heads % degrees.tensor == 0
        assert degrees.tensor <= machines.slots_per_node
        assert degrees.pipeline <= wanted.shape.blocks


@settings(max_examples=30, deadline=None)
@given(wanted, machines, supported)
def test_the_choice_is_explained_in_two_sentences(wanted: PlanRequest, machines: Machines, supported: SupportedPlans) -> None:
    choice = choose(wanted, machines, supported)
    assert choice.why.count(". ") == 1
    assert choice.why.endswith(".")
    assert all(each.why for each in choice.rejected)


def test_degrees_are_every_factorization() -> None:
    assert list(all_degrees(4, {"replicate", "shard"})) == [Degrees(1, 4), Degrees(2, 2), Degrees(4, 1)]
    assert list(all_degrees(3, ())) == []


def best(wanted: PlanRequest, machines: Machines, supported: SupportedPlans = DATA) -> Candidate:
    found = choose(wanted, machines, supported).best
    assert found is not None
    return found


def test_replicas_where_they_fit_and_shards_where_they_do_not() -> None:
    assert best(WANTED, NODE).setup.degrees == Degrees(replicate=4)
    smallest = min(needs(WANTED, each) for each in setups(WANTED, NODE, DATA))
    scarce = best(WANTED, replace(NODE, memory_bytes=int(smallest / 0.9) + 2))
    assert scarce.setup.degrees.shard > 1
    assert scarce.setup.activation_checkpointing == "full"


def test_reproducible_is_promised_by_replicas_alone() -> None:
    choice = choose(replace(WANTED, reproducible=True), NODE, EVERYTHING)
    assert {each.candidate.setup.degrees for each in choice.rejected} == {Degrees(replicate=4)}


def test_reproducible_left_open_is_promised_where_replicas_are_chosen() -> None:
    for each in setups(replace(WANTED, reproducible=None), NODE, DATA):
        assert each.reproducible == (each.degrees == Degrees(replicate=4))


def test_what_is_settled_binds_the_choice() -> None:
    assert {each.micro_batch_size for each in setups(replace(WANTED, micro_batch_size=2), NODE, DATA)} == {2}
    assert {each.degrees for each in setups(replace(WANTED, degrees={"shard": 2}), NODE, DATA)} == {Degrees(2, 2)}
    with pytest.raises(ValueError, match="along replicate, shard, with shard=3 as given; use 4 or more samples, or fewer slots, or leave"):
        choose(replace(WANTED, degrees={"shard": 3}), NODE, DATA)


def test_what_is_not_permitted_is_neither_chosen_nor_told_of() -> None:
    halves = replace(DATA, permits=lambda setup: setup.degrees.shard == 2)
    choice = choose(WANTED, NODE, halves)
    assert {each.candidate.setup.degrees for each in choice.rejected} == {Degrees(2, 2)}


def test_an_elastic_plan_fits_every_size() -> None:
    """Replicas that add up in a tree hold more sums the fewer they are; and each of the most needs a micro-batch."""
    elastic = replace(WANTED, reproducible=True, also_replicas=(1, 8))
    found = best(elastic, NODE)
    alone = replace(found.setup, degrees=Degrees(replicate=1))
    assert found.memory.total == needs(WANTED, alone) > needs(WANTED, found.setup)
    assert {each.micro_batch_size for each in setups(elastic, NODE, DATA)} == {1, 2}


def test_of_a_large_world_memory_is_looked_at_where_it_decides_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are thousands of plans, and each costs a walk through all layers."""
    looked: list[TrainingSetup] = []

    def counted(shape: ModelShape, setup: TrainingSetup) -> RankMemory:
        looked.append(setup)
        return memory(shape, setup)

    monkeypatch.setattr("paceline.parallelism.planning.auto.memory", counted)
    wanted = PlanRequest(gpt_shape(GptModel(preset="gpt-1m"), NumberFormats("bf16", CUDA)), 512, precision="bf16")
    large = Machines(8, 8, 80 * 2**30, 4e14, Link(2e11, 1e-5), Link(2.5e10, 2e-5))
    assert choose(wanted, large, EVERYTHING).best is not None
    assert len(looked) < len(list(setups(wanted, large, EVERYTHING))) / 4


def test_nothing_fits_says_by_how_much_and_what_would() -> None:
    tiny = replace(NODE, memory_bytes=8_000)
    choice = choose(WANTED, tiny, SupportedPlans(("replicate", "shard")))
    assert choice.best is None
    assert choice.why.startswith("Nothing fits: the smallest plan, ")
    assert "more than the 7.0 KiB there is. It would fit with full activation checkpointing or " in choice.why
    assert "slots with " in choice.why
    supported = SupportedPlans(("replicate", "shard"))
    assert choice.rejected[0].candidate.memory.total == min(needs(WANTED, each) for each in setups(WANTED, tiny, supported))


def test_more_nodes_are_a_way_out_only_where_they_help() -> None:
    alone = replace(NODE, slots_per_node=1, memory_bytes=8_000)
    assert "nodes of 1 slot" not in choose(WANTED, alone, SupportedPlans()).why  # every replica needs the same
    needed = min(needs(WANTED, each) for each in setups(WANTED, replace(alone, nodes=4), DATA))
    assert " 4 nodes of 1 slot or " in choose(WANTED, replace(alone, memory_bytes=int(needed / 0.9) + 2), DATA).why


def test_a_batch_too_small_for_the_world_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="cannot be shared out over 4 ranks along replicate; use 4 or more samples, or fewer slots"):
        choose(replace(WANTED, global_batch_size=2), NODE, SupportedPlans())


def test_a_slow_link_keeps_talkative_axes_within_a_node() -> None:
    assert axis_link("tensor", Degrees(replicate=2, tensor=2), NODE) == (NODE.within, 1)
    two = replace(NODE, nodes=2)
    assert axis_link("replicate", Degrees(replicate=2, tensor=4), two) == (two.between, 4)  # four rings share the node's link
    assert axis_link("shard", Degrees(shard=8), two) == (two.between, 1)
