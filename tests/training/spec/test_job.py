"""What a spec refuses, and that it says what to do instead."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.parallelism.plan import Degrees
from paceline.training.planning.auto import with_micro_batch
from paceline.training.spec import derived
from paceline.training.spec.conflicts import too_few_micro_batches
from paceline.training.spec.job import JobSpec, json_schema
from tests.training.specs import tiny_gpt

FSDP = {"parallelism": {"strategy": "fsdp"}, "resources": {"nodes": 4}}
STAGED = {"parallelism": {"pipeline": 2}, "resources": {"nodes": 2}, "fault_tolerance": {}}
TENSOR = {"parallelism": {"strategy": "ddp", "tensor": 2}, "resources": {"nodes": 4}}
PAIRS = FSDP | {"parallelism": {"strategy": "fsdp", "shard": 2}}
RESTART = {"fault_tolerance": {"recovery": "restart"}}
SPARE = {"fault_tolerance": {"recovery": "close_up", "spares": 1}}
SHORT = {"steps": 1, "global_batch_size": 1}
SCRIPT = {"model": None, "data": None, "training": None, "script": {"path": "train.py"}}


def refusals(spec: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(spec)
    return [(error["type"], error["msg"]) for error in caught.value.errors()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"parallelism": {"strategy": "auto"}, "entrypoint": "a:b", "model": None, "data": None},
            "strategy auto goes by what a model will need, which is known of gpt, mlp, resnet and, by their model.config, "
            "llama, mistral, qwen2, qwen3 with their usual attention, not of an entrypoint's; use ddp or fsdp",
        ),
        (
            {"parallelism": {"strategy": "auto"}, "model": {"kind": "hf", "path": "/model"}},
            "not of this model of transformers; use ddp or fsdp",
        ),
        ({"parallelism": {"strategy": "single"}, "resources": {"nodes": 2}}, "strategy single is one process"),
        ({"resources": {"nodes": 8}}, "in micro-batches of 2 makes 4, fewer than 8 ranks; use micro_batch_size=1"),
        ({"resources": {"nodes": 9}}, "fewer than 9 ranks; use global_batch_size=9 or more"),
        ({"training": {"steps": 9, "pause_at_steps": [3, 9]}}, "pause_at_steps ends with 9, but training ends after steps=9"),
        ({"training": {"steps": 9, "pause_at_steps": [3, 2, 3]}}, "must rise from each step to the next; use [2, 3]"),
        ({"training": {"steps": 1, "global_batch_size": 4, "micro_batch_size": 5}}, "larger than global_batch_size=4; use 4 or less"),
        (SCRIPT | {"reproducible": True}, "reproducible=true needs Paceline's trainer"),
        (SCRIPT | {"initial_weights": "/weights"}, "initial_weights=/weights needs Paceline's trainer: leave it out for script"),
        ({"initial_weights": "weights"}, "initial_weights=weights is not an absolute path, nor one of s3://BUCKET/PREFIX"),
        (
            {"initial_weights": "/weights", "model": {"kind": "hf", "path": "/model"}},
            "initial_weights=/weights and model.path=/model: give one of them",
        ),
        (SCRIPT | {"compile": True}, "compile=true needs Paceline's trainer"),
        (
            {"compile": True, "parallelism": {"tensor": 2}, "resources": {"nodes": 2}},
            "inside would be compiled in pieces; leave it out, or use replicas, fsdp or a pipeline alone",
        ),
        (
            {"compile": True, "parallelism": {"pipeline": 2, "pipeline_schedule": "zero_bubble"}, "resources": {"nodes": 2}},
            "one by one, which a compiled block does not do; leave it out, or use gpipe, 1f1b or interleaved_1f1b",
        ),
        (
            {"compile": True, "parallelism": {"activation_checkpointing": "selective"}},
            "would not be compiled: what chooses the activations to keep sees single operations only; use full or none",
        ),
        (
            SCRIPT | {"fault_tolerance": {"on_nan": "skip_update"}},
            "which asks before it updates: use stop or warn for script",
        ),
        (SCRIPT | {"fault_tolerance": {"on_nan": "skip_update"}}, "a loop with paceline.Trainer has on_nan='skip_update' of its own"),
        (SCRIPT | {"fault_tolerance": {"on_spike": "roll_back"}}, "on_spike=roll_back needs Paceline's trainer"),
        (
            {"fault_tolerance": {"on_nan": "roll_back", "max_restarts": 0}},
            "on_nan=roll_back goes back at most fault_tolerance.max_restarts=0 times",
        ),
        ({"fault_tolerance": {"hang_seconds": 0.5}}, "hang_seconds=0.5 would take a moment's delay for a hang; use 1 or more"),
        ({"fault_tolerance": {"hang_seconds": 1800}}, "the communication itself gives up after 1800 s; use less"),
        ({"data": {"kind": "digits"}}, "model gpt does not train on data digits; it takes stdlib_text"),
        ({"data": None}, "model and data belong together"),
        ({"entrypoint": "module:function"}, "got model, entrypoint"),
        ({"environment": {"variables": {"RANK": "1"}}}, "sets RANK, which Paceline itself sets"),
        (
            RESTART | {"resources": {"nodes": 2, "min_nodes": 1}},
            "resources.min_nodes=1 is for jobs that close up: set fault_tolerance.recovery",
        ),
        (
            RESTART | {"resources": {"nodes": 2, "max_nodes": 3}},
            "resources.max_nodes=3 is for jobs that close up: set fault_tolerance.recovery",
        ),
        (SCRIPT | {"resources": {"nodes": 2, "min_nodes": 3}}, "min_nodes=3 is more than nodes=2"),
        ({"fault_tolerance": {"recovery": "restart", "spares": 1}}, "fault_tolerance.spares=1 is for jobs that close up: set"),
        (SCRIPT | SPARE, "fault_tolerance.spares=1 is for jobs that close up: a script is started again as a whole"),
        (SPARE | {"parallelism": {"strategy": "single"}}, "fault_tolerance.spares=1 is for jobs that close up: strategy single"),
        (SPARE | {"resources": {"nodes": 3, "max_nodes": 2}}, "max_nodes=2 is less than nodes=3"),
        (SPARE | {"resources": {"nodes": 2, "max_nodes": 8}}, "makes 4, fewer than 8 ranks (resources.max_nodes); use micro_batch_size=1"),
        (
            FSDP | {"reproducible": True},
            "without it that changes with the number of ranks; set it, leave reproducible out, or use ddp",
        ),
        (
            PAIRS | SPARE | {"resources": {"nodes": 4, "min_nodes": 3}},
            "resources.min_nodes=3: replicate=any x shard=2 does not divide world size 3",
        ),
        (
            PAIRS | SPARE | {"resources": {"nodes": 2, "max_nodes": 3}},
            "resources.max_nodes=3: replicate=any x shard=2 does not divide world size 3",
        ),
        (
            FSDP | {"parallelism": {"strategy": "fsdp", "replicate": 3}},
            "replicate=3 x shard=any does not divide world size 4; use a divisor",
        ),
        (FSDP | {"parallelism": {"strategy": "fsdp", "replicate": 2, "shard": 4}}, "replicate=2 x shard=4 does not divide world size 4"),
        ({"parallelism": {"shard": 2}}, "parallelism.shard=2 is for strategy fsdp, not ddp; leave it out, or use fsdp"),
        ({"parallelism": {"cpu_offload": True}}, "parallelism.cpu_offload=true is for strategy fsdp, not ddp"),
        ({"parallelism": {"reshard_after_forward": False}}, "parallelism.reshard_after_forward=false is for strategy fsdp"),
        (
            TENSOR | {"resources": {"nodes": 3}},
            "tensor=2 does not divide world size 3; use 2 or 4 ranks, or degrees whose product divides 3",
        ),
        (
            TENSOR | {"resources": {"nodes": 2, "min_nodes": 1}},
            "min_nodes=1: tensor=2 does not divide world size 1; use 2 ranks, or degrees whose product divides 1; or leave min_nodes out",
        ),
        (TENSOR | {"parallelism": {"tensor": 4}}, "heads=2 does not divide by tensor=4; this model can be cut into tensor=1 or 2"),
        (
            TENSOR | {"parallelism": {"context": 2, "strategy": "fsdp"}, "training": SHORT},
            "1, fewer than 2 data ranks; use global_batch_size=2",
        ),
        (TENSOR | {"resources": {"nodes": 16}}, "makes 4, fewer than 8 data ranks; use micro_batch_size=1"),
        (
            TENSOR | {"reproducible": True},
            "reproducible=true needs each micro-batch's gradients whole: with tensor=2 every rank finds a part",
        ),
        (
            TENSOR | SPARE | {"resources": {"nodes": 4, "max_nodes": 5}},
            "resources.max_nodes=5: tensor=2 does not divide world size 5; use 4 or 6",
        ),
        (
            TENSOR | {"model": {"kind": "mlp"}, "data": {"kind": "digits"}},
            "tensor=2 is for models gpt and hf, which say how they are cut; model mlp does not",
        ),
        (
            TENSOR | {"model": None, "data": None, "entrypoint": "a:b"},
            "which say how they are cut; an entrypoint's model does not: leave both at 1",
        ),
        ({"parallelism": {"strategy": "single", "tensor": 2}, "resources": {"nodes": 2}}, "strategy single is one process"),
        (SCRIPT | {"training": SHORT}, "leave training out: the script decides"),
        ({"training": None}, "training is required: give steps or epochs"),
        (SCRIPT | {"parallelism": {"strategy": "fsdp"}}, "a script arranges its ranks by itself: leave parallelism out"),
        (SCRIPT | {"parallelism": {"activation_checkpointing": "full"}}, "a script arranges its ranks by itself"),
        ({"optimizer": {"kind": "sgd", "nesterov": True, "momentum": 0}}, "needs momentum over 0, and momentum is 0: give it, such as 0.9"),
        ({"model": {"kind": "resnet", "depth": 21}, "data": {"kind": "cifar10", "path": "/d"}}, "use 20 or 26"),
    ],
)
def test_what_does_not_fit_together_names_the_way_out(change: dict[str, Any], message: str) -> None:
    assert any(message in text for kind, text in refusals(tiny_gpt() | change) if kind == "inconsistent_spec")


def test_unknown_fields_are_refused() -> None:
    assert refusals(tiny_gpt() | {"gpus": 4}) == [("extra_forbidden", "Extra inputs are not permitted")]


def test_a_spec_survives_json() -> None:
    spec = JobSpec.model_validate(tiny_gpt(2))
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
    assert (spec.world_size, derived.micro_batch_size(spec), derived.micro_batches(spec)) == (2, 2, 4)


def test_the_schema_is_published_with_its_discriminators() -> None:
    properties = json_schema()["properties"]
    assert {"name", "model", "training", "checkpoint"} <= set(properties)


@pytest.mark.parametrize(("batch", "micro", "count"), [(32, 4, 8), (8, 1, 8), (9, 2, 5), (100, 13, 8), (3, 1, 3)])
def test_a_reproducible_jobs_micro_batches_do_not_depend_on_its_resources(batch: int, micro: int, count: int) -> None:
    for nodes in (1, 2, 3):
        spec = JobSpec.model_validate(tiny_gpt(nodes, global_batch_size=batch, micro_batch_size=None))
        assert derived.is_reproducible(spec)
        assert (derived.micro_batch_size(spec), derived.micro_batches(spec)) == (micro, count)


def test_a_fast_jobs_micro_batch_is_a_ranks_share() -> None:
    spec = JobSpec.model_validate(tiny_gpt(3, global_batch_size=10, micro_batch_size=None) | {"reproducible": False})
    assert (derived.micro_batch_size(spec), derived.micro_batches(spec)) == (4, 3)


def test_nodes_of_the_version_before_see_no_pauses_where_there_are_none() -> None:
    plain = JobSpec.model_validate(tiny_gpt()).model_dump(mode="json")
    paused = JobSpec.model_validate(tiny_gpt(pause_at_steps=[3])).model_dump(mode="json")
    assert ("pause_at_steps" in plain["training"], paused["training"]["pause_at_steps"]) == (False, [3])


def test_a_script_is_not_said_to_be_reproducible() -> None:
    assert not derived.is_reproducible(JobSpec.model_validate(tiny_gpt() | SCRIPT))


def test_a_job_that_closes_up_may_grow_as_far_as_its_micro_batches_go() -> None:
    spec = JobSpec.model_validate(tiny_gpt() | SPARE | {"resources": {"nodes": 1, "max_nodes": 4}})
    assert (derived.closes_up(spec), spec.world_size, spec.resources.most_ranks, spec.fault_tolerance.spares) == (True, 1, 4, 1)
    assert too_few_micro_batches(spec, 4) is None
    assert too_few_micro_batches(spec, 5) == "global_batch_size=8 in micro-batches of 2 makes 4, fewer than 5 ranks"


def test_what_is_not_reproducible_is_cut_for_its_largest_size() -> None:
    spec = JobSpec.model_validate(
        tiny_gpt(micro_batch_size=None) | SPARE | {"reproducible": False, "resources": {"nodes": 2, "max_nodes": 4}}
    )
    assert (derived.micro_batch_size(spec), derived.micro_batches(spec)) == (2, 4)


@pytest.mark.parametrize("plan", [{"strategy": "fsdp", "shard": 2}, {"pipeline": 2}])
def test_replicas_of_shards_or_stages_can_be_reproducible(plan: dict[str, Any]) -> None:
    """Their micro-batches depend on what a replica is made up of, not on how many there are."""
    specs = [
        JobSpec.model_validate(tiny_gpt(nodes, global_batch_size=32, micro_batch_size=None) | {"parallelism": plan, "reproducible": True})
        for nodes in (2, 4, 6)
    ]
    assert [(derived.is_reproducible(spec), derived.micro_batch_size(spec), derived.micro_batches(spec)) for spec in specs] == [
        (True, 2, 16)
    ] * 3


def test_a_sharded_job_is_not_reproducible_and_its_survivors_keep_their_processes() -> None:
    spec = JobSpec.model_validate(tiny_gpt() | FSDP | {"fault_tolerance": {}})
    assert (derived.is_reproducible(spec), derived.closes_up(spec)) == (False, True)
    assert spec.parallelism.degrees(4) == Degrees(shard=4)
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_model_parallel_job_is_dealt_out_to_its_data_ranks_and_is_not_reproducible() -> None:
    spec = JobSpec.model_validate(tiny_gpt(micro_batch_size=None) | TENSOR | {"fault_tolerance": {}})
    assert (derived.is_reproducible(spec), derived.closes_up(spec)) == (False, True)
    assert spec.parallelism.degrees(4) == Degrees(replicate=2, tensor=2)
    assert (derived.micro_batch_size(spec), derived.micro_batches(spec)) == (4, 2)


def test_a_spec_of_an_earlier_version_had_every_axis_at_one() -> None:
    axes = {"shard": 1, "tensor": 1, "pipeline": 1, "context": 1}
    assert JobSpec.model_validate(tiny_gpt() | {"parallelism": {"strategy": "ddp", **axes}}).parallelism.degrees(2).replicate == 2


@pytest.mark.parametrize(
    ("change", "least"),
    [
        ({"resources": {"nodes": 4}}, 1),  # a replica on each rank
        (FSDP, 4),  # fewer would hold more each
        (PAIRS, 2),  # a replica on two
        (FSDP | {"parallelism": {"strategy": "fsdp", "replicate": 2}}, 4),
        (FSDP | {"parallelism": {"strategy": "fsdp", "replicate": 2, "shard": 2}}, 4),
        (FSDP | {"resources": {"nodes": 4, "min_nodes": 3}}, 3),  # its user knows that it fits
    ],
)
def test_no_rank_is_given_more_to_hold_unless_its_user_says_so(change: dict[str, Any], least: int) -> None:
    assert derived.min_ranks(JobSpec.model_validate(tiny_gpt() | SPARE | change)) == least


def test_a_sharded_job_moves_only_to_sizes_that_its_axes_come_to() -> None:
    spec = JobSpec.model_validate(tiny_gpt() | FSDP | {"parallelism": {"strategy": "fsdp", "replicate": 2, "cpu_offload": True}})
    assert spec.parallelism.misfit(6) is None
    assert spec.parallelism.misfit(3) == (
        "replicate=2 x shard=any does not divide world size 3; use a divisor of 3 for one of them, and leave the other out"
    )
    assert (
        spec.parallelism.misfit(2)
        == "cpu_offload=true is for models in parts, but with 2 ranks each has all of it; leave it out, or use more ranks"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training": {"steps": 1, "micro_batch_size": "many"}}, "Invalid value 'many': use a whole number from 1 to 16777216, or auto"),
        ({"training": {"steps": 1, "micro_batch_size": 0}}, "Invalid value 0: use a whole number from 1 to 16777216, or auto"),
        ({"training": {"steps": 1, "micro_batch_size": True}}, "Invalid value True: use a whole number from 1 to 16777216, or auto"),
        (
            {"resources": {"memory_per_slot": "8 apples"}},
            "Invalid value '8 apples': use a number of bytes from 1 to 1024 TiB, as 536870912 or 512MiB",
        ),
        (
            {"resources": {"memory_per_slot": "auto"}},
            "Invalid value 'auto': use a number of bytes from 1 to 1024 TiB, as 536870912 or 512MiB",
        ),
    ],
)
def test_an_amount_that_is_none_is_refused_by_its_rule(change: dict[str, Any], message: str) -> None:
    assert refusals(tiny_gpt() | change) == [("string_pattern_mismatch", message)]


@pytest.mark.parametrize(("text", "count"), [("512MiB", 2**29), ("1.5 GB", 1_500_000_000), ("64", 64), (64, 64)])
def test_bytes_may_be_written_with_their_unit(text: str | int, count: int) -> None:
    assert JobSpec.model_validate(tiny_gpt() | {"resources": {"memory_per_slot": text}}).resources.memory_per_slot == count


def test_a_micro_batch_that_is_to_be_found_has_the_default_s_size_until_then() -> None:
    length = tiny_gpt()["training"]
    spec = JobSpec.model_validate(tiny_gpt() | {"training": length | {"micro_batch_size": "auto"}})
    assert derived.searches_micro_batch(spec)
    assert derived.micro_batch_size(spec) == derived.micro_batch_size(JobSpec.model_validate(tiny_gpt(micro_batch_size=None)))
    found = with_micro_batch(spec, 1)
    assert (derived.searches_micro_batch(found), derived.micro_batch_size(found)) == (False, 1)
    assert found.model_dump() | {"training": None} == spec.model_dump() | {"training": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"parallelism": {"pipeline_schedule": "gpipe"}},
            "parallelism.pipeline_schedule=gpipe is for pipelines; leave it out, or set parallelism",
        ),
        ({"parallelism": {"stages_per_rank": 2}}, "parallelism.stages_per_rank=2 is for pipelines"),
        (
            STAGED | {"parallelism": {"pipeline": 2, "strategy": "fsdp", "pipeline_schedule": "zero_bubble"}},
            "pipeline_schedule=zero_bubble with strategy fsdp is not offered.*; use gpipe, 1f1b or interleaved_1f1b, or ddp",
        ),
        (STAGED | {"parallelism": {"pipeline": 2, "stages_per_rank": 2}}, "1f1b with 2 stages on each rank does not exist; use 1"),
        (
            STAGED | {"parallelism": {"pipeline": 2, "tensor": 4}, "resources": {"nodes": 8}},
            "heads=2 does not divide by tensor=4; this model can be cut into tensor=1 or 2",
        ),
        (STAGED | {"resources": {"nodes": 3}}, "pipeline=2 does not divide world size 3; use 2 or 4 ranks"),
        (
            STAGED | {"reproducible": True, "parallelism": {"pipeline": 2, "context": 2}, "resources": {"nodes": 4}},
            "reproducible=true needs each micro-batch's gradients whole: with pipeline=2 x context=2 .* or use replicas of a model",
        ),
        (
            STAGED | {"reproducible": True, "parallelism": {"pipeline": 2, "strategy": "fsdp", "shard": 2}, "resources": {"nodes": 4}},
            "reproducible=true with both fsdp and a pipeline is not offered",
        ),
        (
            STAGED | {"reproducible": True, "parallelism": {"pipeline": 2, "stages_by": "time"}},
            "reproducible=true with stages_by=time would have other stages in each generation",
        ),
        (
            STAGED | {"parallelism": {"pipeline": 4}, "resources": {"nodes": 4}},
            r"makes 4 stages, but this model can be cut into 3 .*use pipeline=3 or f",
        ),
        (
            STAGED | {"parallelism": {"pipeline": 2, "pipeline_schedule": "zero_bubble_v"}},
            "2 stages on each rank makes 4 stages, but this model can be cut into 3 .*; use ddp or fsdp without",
        ),
        (
            STAGED | {"model": {"kind": "hf", "config": {"model_type": "bloom"}}},
            "does not know where a model of family bloom may be cut into stages",
        ),
        (
            STAGED | {"resources": {"nodes": 2, "max_nodes": 3}},
            "resources.max_nodes=3: pipeline=2 does not divide world size 3; use 2 or 4",
        ),
        (SCRIPT | {"parallelism": {"pipeline": 2}, "resources": {"nodes": 2}}, "a script arranges its ranks by itself"),
    ],
)
def test_what_cannot_be_trained_in_stages_is_refused_with_the_way_out(change: dict[str, Any], message: str) -> None:
    (found,) = refusals(tiny_gpt() | change)
    assert found[0] == "inconsistent_spec"
    assert re.search(message, found[1]), found[1]


def test_a_pipeline_may_have_any_precision() -> None:
    assert JobSpec.model_validate(tiny_gpt() | STAGED | {"precision": "fp16"}).parallelism.pipeline == 2


def test_a_pipeline_is_not_reproducible_and_has_four_micro_batches_for_each_of_its_ranks() -> None:
    spec = JobSpec.model_validate(tiny_gpt(global_batch_size=32, micro_batch_size=None) | STAGED | {"resources": {"nodes": 4}})
    assert (derived.is_reproducible(spec), derived.closes_up(spec)) == (False, True)
    assert spec.parallelism.degrees(4) == Degrees(pipeline=2, replicate=2)
    assert (derived.micro_batch_size(spec), derived.micro_batches(spec)) == (2, 16)
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
    assert derived.micro_batches(JobSpec.model_validate(tiny_gpt(global_batch_size=5, micro_batch_size=None) | STAGED)) == 5


def test_a_script_may_say_for_how_long_it_is_never_quiet() -> None:
    """Its own communication has limits of its own, which nobody here knows."""
    accepted = JobSpec.model_validate(tiny_gpt() | SCRIPT | {"fault_tolerance": {"hang_seconds": 7200}})
    assert accepted.fault_tolerance.hang_seconds == 7200
