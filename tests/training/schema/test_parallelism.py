"""The axes of the mesh may be written with the names that torchtitan has for them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from paceline.training.schema.parallelism import AXIS_ALIASES, Parallelism
from paceline.training.spec.job import JobSpec, json_schema
from paceline.training.spec.refusals import told
from tests.training.specs import tiny_gpt


def refusal(parallelism: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(tiny_gpt(8) | {"parallelism": parallelism})
    return told(refused.value, most=2)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (
            {"strategy": "fsdp", "dp_replicate": 2, "dp_shard": 2, "tp": 2},
            {"strategy": "fsdp", "replicate": 2, "shard": 2, "tensor": 2},
        ),
        ({"tp": 2, "cp": 2, "pp": 2}, {"tensor": 2, "context": 2, "pipeline": 2}),
        ({"strategy": "fsdp", "dp_shard": 2, "tensor": 2}, {"strategy": "fsdp", "shard": 2, "tensor": 2}),
        ({"strategy": "fsdp", "dp_replicate": None}, {"strategy": "fsdp"}),
    ],
)
def test_a_spec_is_kept_with_the_standing_names(written: dict[str, Any], kept: dict[str, Any]) -> None:
    found = Parallelism.model_validate(written)
    assert found == Parallelism.model_validate(kept)
    assert found.model_fields_set >= set(kept)
    assert not set(found.model_dump()) & set(AXIS_ALIASES)


@pytest.mark.parametrize(("alias", "name"), AXIS_ALIASES.items())
def test_an_axis_under_both_of_its_names_is_refused(alias: str, name: str) -> None:
    said = f"parallelism: parallelism.{alias} and parallelism.{name} are two names of one axis: give one of them"
    assert refusal({alias: 2, name: 2}) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tp": "two"}, "parallelism.tensor takes a whole number, without quotes and without leading zeros; got 'two'"),
        ({"strategy": "fsdp", "dp_shard": -1}, "parallelism.shard must be 1 or more; got -1"),
        ({"dp_shard": 2}, "parallelism: parallelism.shard=2 is for strategy fsdp, not ddp; leave it out, or use fsdp"),
        ([["tp", 2]], "parallelism takes the fields strategy, servers, replicate, shard, tensor, pipeline, context, "),
    ],
)
def test_what_is_wrong_is_told_under_the_standing_name(given: Any, said: str) -> None:
    assert refusal(given).startswith(said)


def test_an_axis_in_the_wrong_place_is_offered_in_the_right_one() -> None:
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(tiny_gpt() | {"tp": 2})
    assert "did you mean `parallelism.tensor`?" in told(refused.value, most=1)


def test_the_schema_tells_of_both_names() -> None:
    fields = json_schema()["$defs"]["Parallelism"]["properties"]
    assert {field["x-alias"]: name for name, field in fields.items() if "x-alias" in field} == AXIS_ALIASES
    assert all(f" Also written {alias}." in fields[name]["description"] for alias, name in AXIS_ALIASES.items())
