"""What a spec refuses, and that it says what to do instead."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from parallelism.plan import Degrees
from tests.training.specs import tiny_gpt
from training.spec import JobSpec, json_schema

FSDP = {"parallelism": {"strategy": "fsdp"}, "resources": {"nodes": 4}}
RESTART = {"fault_tolerance": {"recovery": "restart"}}
SPARE = {"fault_tolerance": {"recovery": "close_up", "spares": 1}}
SCRIPT = {"model": None, "data": None, "training": None, "script": {"path": "train.py"}}


def refusals(spec: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(spec)
    return [(error["type"], error["msg"]) for error in caught.value.errors()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parallelism": {"strategy": "auto"}}, "parallelism.strategy=auto is not available yet; use single, ddp or fsdp"),
        ({"parallelism": {"tensor": 2}}, "parallelism.tensor=2 is not available yet; leave it at 1"),
        ({"precision": "fp16"}, "precision=fp16 is not available yet; use bf16 or fp32"),
        ({"checkpoint": {"asynchronous": True}}, "saves are synchronous"),
    ],
)
def test_what_later_versions_implement_is_refused_not_ignored(change: dict[str, Any], message: str) -> None:
    ((kind, text),) = refusals(tiny_gpt() | change)
    assert kind == "not_available_yet"
    assert message in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parallelism": {"strategy": "single"}, "resources": {"nodes": 2}}, "strategy single is one process"),
        ({"resources": {"nodes": 8}}, "in micro-batches of 2 makes 4, fewer than 8 ranks; use micro_batch_size=1"),
        ({"resources": {"nodes": 9}}, "fewer than 9 ranks; use global_batch_size=9 or more"),
        ({"training": {"steps": 1, "global_batch_size": 4, "micro_batch_size": 5}}, "larger than global_batch_size=4; use 4 or less"),
        (SCRIPT | {"reproducible": True}, "reproducible=true needs Paceline's trainer"),
        (SCRIPT | {"fault_tolerance": {"hang_seconds": 60}}, "hang_seconds needs Paceline's trainer"),
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
        (
            SCRIPT | {"resources": {"nodes": 2, "max_nodes": 3}},
            "resources.max_nodes=3 is for jobs that close up: a script is started again",
        ),
        ({"fault_tolerance": {"recovery": "restart", "spares": 1}}, "fault_tolerance.spares=1 is for jobs that close up: set"),
        (SCRIPT | SPARE, "fault_tolerance.spares=1 is for jobs that close up: a script is started again as a whole"),
        (SPARE | {"parallelism": {"strategy": "single"}}, "fault_tolerance.spares=1 is for jobs that close up: strategy single"),
        (SPARE | {"resources": {"nodes": 3, "max_nodes": 2}}, "max_nodes=2 is less than nodes=3"),
        (SPARE | {"resources": {"nodes": 2, "max_nodes": 8}}, "makes 4, fewer than 8 ranks (resources.max_nodes); use micro_batch_size=1"),
        (
            FSDP | {"reproducible": True},
            "parts of them are added up in an order that depends on the number of ranks; leave it out, or use ddp",
        ),
        (FSDP | SPARE, "fault_tolerance.spares=1 is for jobs that close up: with strategy fsdp each rank holds a part of the state"),
        (FSDP | {"resources": {"nodes": 4, "min_nodes": 2}}, "resources.min_nodes=2 is for jobs that close up: with strategy fsdp"),
        (
            FSDP | {"parallelism": {"strategy": "fsdp", "replicate": 3}},
            "replicate=3 x shard=any does not divide world size 4; use a divisor",
        ),
        (FSDP | {"parallelism": {"strategy": "fsdp", "replicate": 2, "shard": 4}}, "replicate=2 x shard=4 does not divide world size 4"),
        ({"parallelism": {"shard": 2}}, "parallelism.shard=2 is for strategy fsdp, not ddp; leave it out, or use fsdp"),
        ({"parallelism": {"cpu_offload": True}}, "parallelism.cpu_offload=true is for strategy fsdp, not ddp"),
        ({"parallelism": {"reshard_after_forward": False}}, "parallelism.reshard_after_forward=false is for strategy fsdp"),
        (SCRIPT | {"parallelism": {"strategy": "fsdp"}}, "a script arranges its ranks by itself: leave parallelism out"),
        (SCRIPT | {"parallelism": {"activation_checkpointing": "full"}}, "a script arranges its ranks by itself"),
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
    assert (spec.world_size, spec.micro_batch_size, spec.micro_batches) == (2, 2, 4)


def test_the_schema_is_published_with_its_discriminators() -> None:
    properties = json_schema()["properties"]
    assert {"name", "model", "training", "checkpoint"} <= set(properties)


@pytest.mark.parametrize(("batch", "micro", "count"), [(32, 4, 8), (8, 1, 8), (9, 2, 5), (100, 13, 8), (3, 1, 3)])
def test_a_reproducible_jobs_micro_batches_do_not_depend_on_its_resources(batch: int, micro: int, count: int) -> None:
    for nodes in (1, 2, 3):
        spec = JobSpec.model_validate(tiny_gpt(nodes, global_batch_size=batch, micro_batch_size=None))
        assert spec.is_reproducible
        assert (spec.micro_batch_size, spec.micro_batches) == (micro, count)


def test_a_fast_jobs_micro_batch_is_a_ranks_share() -> None:
    spec = JobSpec.model_validate(tiny_gpt(3, global_batch_size=10, micro_batch_size=None) | {"reproducible": False})
    assert (spec.micro_batch_size, spec.micro_batches) == (4, 3)


def test_a_script_is_not_said_to_be_reproducible() -> None:
    assert not JobSpec.model_validate(tiny_gpt() | SCRIPT).is_reproducible


def test_a_job_that_closes_up_may_grow_as_far_as_its_micro_batches_go() -> None:
    spec = JobSpec.model_validate(tiny_gpt() | SPARE | {"resources": {"nodes": 1, "max_nodes": 4}})
    assert (spec.closes_up, spec.world_size, spec.resources.most_ranks, spec.fault_tolerance.spares) == (True, 1, 4, 1)
    assert spec.too_few_micro_batches(4) is None
    assert spec.too_few_micro_batches(5) == "global_batch_size=8 in micro-batches of 2 makes 4, fewer than 5 ranks"


def test_what_is_not_reproducible_is_cut_for_its_largest_size() -> None:
    spec = JobSpec.model_validate(
        tiny_gpt(micro_batch_size=None) | SPARE | {"reproducible": False, "resources": {"nodes": 2, "max_nodes": 4}}
    )
    assert (spec.micro_batch_size, spec.micro_batches) == (2, 4)


def test_a_sharded_job_is_not_reproducible_and_starts_again_as_a_whole_after_a_fault() -> None:
    spec = JobSpec.model_validate(tiny_gpt() | FSDP | {"fault_tolerance": {}})
    assert (spec.is_reproducible, spec.closes_up) == (False, False)
    assert spec.parallelism.degrees(4) == Degrees(shard=4)
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_spec_of_an_earlier_version_had_every_axis_at_one() -> None:
    axes = {"shard": 1, "tensor": 1, "pipeline": 1, "context": 1}
    assert JobSpec.model_validate(tiny_gpt() | {"parallelism": {"strategy": "ddp", **axes}}).parallelism.degrees(2).replicate == 2


def test_a_sharded_job_moves_only_to_sizes_that_its_axes_come_to() -> None:
    spec = JobSpec.model_validate(tiny_gpt() | FSDP | {"parallelism": {"strategy": "fsdp", "replicate": 2, "cpu_offload": True}})
    assert spec.misfit(6) is None
    assert spec.misfit(3) == (
        "replicate=2 x shard=any does not divide world size 3; use a divisor of 3 for one of them, and leave the other out"
    )
    assert spec.misfit(2) == "cpu_offload=true is for models in parts, but with 2 ranks each has all of it; leave it out, or use more ranks"
