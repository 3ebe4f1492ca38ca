"""What no spec can have: numbers beyond every machine, numbers that are none, and texts that nothing takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.training.models.hf.config import HfModel
from paceline.training.spec.job import JobSpec, json_schema
from paceline.training.spec.text import load

BASE: dict[str, Any] = {
    "name": "bounds",
    "model": {"kind": "gpt"},
    "data": {"kind": "stdlib_text"},
    "optimizer": {"kind": "adamw"},
    "training": {"steps": 10},
}
WHOLE = [
    "resources.nodes",
    "resources.slots_per_node",
    "resources.min_nodes",
    "resources.max_nodes",
    "training.steps",
    "training.global_batch_size",
    "training.seed",
    "training.eval_every_steps",
    "training.eval_samples",
    "training.data_workers",
    "checkpoint.every_steps",
    "checkpoint.keep_last",
    "model.layers",
    "model.dim",
    "model.heads",
    "model.context",
    "model.vocab_size",
    "schedule.warmup_steps",
    "parallelism.tensor",
    "parallelism.pipeline",
    "parallelism.shard",
    "priority",
    "fault_tolerance.max_restarts",
    "fault_tolerance.spares",
    "profile.first_step",
]
REAL = (
    "optimizer.lr",
    "optimizer.eps",
    "training.gradient_clip_norm",
    "fault_tolerance.hang_seconds",
    "schedule.min_ratio",
    "model.dropout",
)
TEXTS = [
    "description",
    "labels.team",
    "environment.variables.A",
    "environment.working_directory",
    "checkpoint.directory",
    "checkpoint.metric",
    "initial_weights",
]


def placed(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(BASE))
    *parts, last = path.split(".")
    here = document
    for part in parts:
        here = here.setdefault(part, {})
    here[last] = value
    return document


def refusals(document: dict[str, Any]) -> list[tuple[str, str]]:
    try:
        JobSpec.model_validate(document)
    except ValidationError as error:
        return [(".".join(map(str, each["loc"])), each["type"]) for each in error.errors()]
    return []


@pytest.mark.parametrize("path", WHOLE)
def test_a_whole_number_beyond_every_machine_is_refused(path: str) -> None:
    for value in (2**62, 4 * 10**18, 10**400, -(2**63)):
        assert refusals(placed(path, value)), value


@pytest.mark.parametrize("path", WHOLE)
def test_a_bool_or_a_text_is_no_whole_number(path: str) -> None:
    for value in (True, "1", "1e3", 1.5, float("nan"), float("inf")):
        assert refusals(placed(path, value)), value


def test_whole_numbers_that_are_written_with_a_point_or_an_exponent_are_taken() -> None:
    spec = JobSpec.model_validate(BASE | load("training: {steps: 1e4, global_batch_size: 64.0}"))
    assert spec.training is not None
    assert (spec.training.steps, spec.training.global_batch_size) == (10_000, 64)


@pytest.mark.parametrize("path", REAL)
def test_a_number_is_finite_and_no_bool(path: str) -> None:
    for value in (float("nan"), float("inf"), -float("inf"), True, "nan", "Infinity", "x"):
        assert refusals(placed(path, value)), value


def test_a_number_that_yaml_takes_for_text_is_read() -> None:
    spec = JobSpec.model_validate(BASE | load("optimizer: {kind: adamw, lr: .5e3}"))
    assert spec.optimizer.lr == 500


@pytest.mark.parametrize("path", TEXTS)
def test_a_nul_is_in_no_text(path: str) -> None:
    assert refusals(placed(path, "/a\0b"))
    assert "nul" in {kind for _, kind in refusals(placed(path, "/a\0b"))}


@pytest.mark.parametrize("path", ["name", "project"])
def test_a_name_does_not_end_in_a_newline(path: str) -> None:
    assert refusals(placed(path, "ok")) == []
    assert refusals(placed(path, "ok\n")) == [(path, "string_pattern_mismatch")]


def test_names_in_mappings_do_not_end_in_a_newline() -> None:
    assert refusals(BASE | {"labels": {"team\n": "a"}})
    assert refusals(BASE | {"environment": {"variables": {"A\n": "a"}}})


@pytest.mark.parametrize("value", ["1" * 400 + "TiB", "9" * 5000, 2**60, "99999999TiB", "1GiB\n1"])
def test_an_amount_of_bytes_has_a_limit(value: object) -> None:
    assert refusals(placed("resources.memory_per_slot", value)) == [("resources.memory_per_slot", "string_pattern_mismatch")]


@pytest.mark.parametrize(("size", "batch"), [(1, 1 << 17), (2, 1 << 18)])
def test_a_batch_in_tokens_is_a_clear_refusal(size: int, batch: int) -> None:
    with pytest.raises(ValidationError, match=r"at most 65536 are dealt out: use micro_batch_size=.* \(a batch is counted in samples"):
        JobSpec.model_validate(BASE | {"training": {"steps": 1, "global_batch_size": batch, "micro_batch_size": size}})


def nested(levels: int) -> dict[str, Any]:
    return {} if levels == 0 else {"a": nested(levels - 1)}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_hidden_layers": 10**9}, "'num_hidden_layers' is 1000000000; at most 1024 is taken"),
        ({"vocab_size": 4 * 10**18}, "'vocab_size' is a number over 2.53; at most 16777216 is taken"),
        ({"anything": 10**400}, "at most 9007199254740992 is taken"),
        ({"rope_theta": float("nan")}, "'rope_theta' is nan, not a finite number"),
        ({"x": nested(9)}, "'a' is nested deeper than 8 levels"),
        ({"x": list(range(5000))}, "more than 4096 values"),
        ({"x": "a\0b"}, "NUL"),
        ({"a\0b": 1}, "NUL"),
    ],
    ids=["layers", "vocabulary", "huge", "NaN", "depth", "length", "NUL", "NUL in a name"],
)
def test_a_configuration_has_limits(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HfModel(config={"model_type": "llama", **config})


def limited(schema: Any, path: str = "") -> dict[str, set[str]]:
    """Each place of a JSON Schema with limits of numbers: their words, those that pydantic alone knows among them."""
    found: dict[str, set[str]] = {}
    if isinstance(schema, dict):
        words = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "ge", "gt", "le", "lt"} & schema.keys()
        found = {path: words} if words else {}
    for key, each in schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ():
        found |= limited(each, f"{path}/{key}")
    return found


def test_a_form_and_an_editor_know_the_limits_of_every_number() -> None:
    found = limited(json_schema())
    assert found["/$defs/Parallelism/properties/tensor"] == {"minimum", "maximum"}
    assert found["/$defs/Communication/anyOf/1/properties/bucket_mb/anyOf/0"] == {"exclusiveMinimum", "maximum"}
    assert found["/$defs/TrainingLength/properties/steps/anyOf/0"] == {"minimum", "maximum"}
    unknown = {path: words for path, words in found.items() if words & {"ge", "gt", "le", "lt"}}
    assert not unknown, "no JSON Schema has these words"
