"""What a job runs is chosen once, from fields of which each kind of job has its own."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from paceline.training.schema.data import StdlibText
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload, EntrypointWorkload, ScriptWorkload
from tests.training.specs import tiny_gpt

LENGTH = {"training": {"steps": 3}}
ENTRYPOINT = {"entrypoint": "my_task:make_task"}
SCRIPT = {"script": {"path": "train.py"}}


def spec_of(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "mine"} | fields)


def test_each_kind_has_what_it_needs_and_no_more() -> None:
    gpt = JobSpec.model_validate(tiny_gpt())
    assert gpt.model is not None
    assert gpt.training is not None
    assert gpt.workload == BuiltinWorkload(gpt.model, StdlibText(), gpt.training)
    own = spec_of(**ENTRYPOINT, **LENGTH)
    assert own.training is not None
    assert own.workload == EntrypointWorkload("my_task:make_task", own.training)
    script = spec_of(**SCRIPT)
    assert script.script is not None
    assert script.workload == ScriptWorkload(script.script)


def test_it_follows_a_changed_spec() -> None:
    spec = spec_of(**ENTRYPOINT, **LENGTH)
    assert spec.training is not None
    assert spec.model_copy(update={"entrypoint": "other:make"}).workload == EntrypointWorkload("other:make", spec.training)


def test_the_document_stays_flat() -> None:
    assert "workload" not in spec_of(**SCRIPT).model_dump()
    assert "workload" not in JobSpec.model_json_schema()["properties"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (LENGTH, "give exactly one of model (with data), entrypoint and script; got none"),
        (ENTRYPOINT | SCRIPT, "give exactly one of model (with data), entrypoint and script; got entrypoint, script"),
        ({"model": {"kind": "gpt"}} | LENGTH, "model and data belong together"),
        (ENTRYPOINT | {"data": {"kind": "digits"}} | LENGTH, "model and data belong together"),
        (SCRIPT | LENGTH, "leave training out: the script decides"),
        (ENTRYPOINT, "training is required: give steps or epochs"),
        (
            {"model": {"kind": "gpt"}, "data": {"kind": "digits"}} | LENGTH,
            "model gpt does not train on data digits; it takes stdlib_text, tokens",
        ),
        (SCRIPT | {"parallelism": {"tensor": 2}}, "a script arranges its ranks by itself"),
    ],
)
def test_fields_that_do_not_make_one_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        spec_of(**fields)
    assert why in str(refused.value)


def test_a_script_has_no_length_of_its_own() -> None:
    with pytest.raises(TypeError, match="job mine runs a script"):
        derived.training_of(spec_of(**SCRIPT))


@pytest.mark.parametrize(
    ("fields", "resized", "saved"),
    [
        (ENTRYPOINT | LENGTH, True, True),
        (ENTRYPOINT | LENGTH | {"parallelism": {"strategy": "single"}}, False, True),
        (SCRIPT, False, False),
        (SCRIPT | {"resources": {"nodes": 2, "min_nodes": 1}}, True, True),
        ({"script": {"path": "train.py", "saves_on_sigterm": True}}, False, True),
    ],
)
def test_what_may_be_resized_and_what_saves_when_it_is_stopped(fields: dict[str, Any], resized: bool, saved: bool) -> None:
    spec = spec_of(**fields)
    assert (derived.can_resize(spec), derived.saves_when_stopped(spec)) == (resized, saved)
