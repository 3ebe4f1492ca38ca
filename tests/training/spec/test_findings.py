"""Everything that is wrong with a spec comes at once."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from paceline.training.spec.findings import all_errors, place_in, without
from paceline.training.spec.job import JobSpec

SPEC: dict[str, Any] = {
    "name": "digits",
    "model": {"kind": "mlp", "hidden": [16]},
    "data": {"kind": "digits"},
    "parallelism": {"strategy": "single"},
    "training": {"steps": 5, "global_batch_size": 8},
}


def told(document: dict[str, Any]) -> list[str]:
    try:
        JobSpec.model_validate(document)
    except ValidationError as error:
        return [str(each["msg"]) for each in all_errors(JobSpec, document, error.errors())]
    return []


def test_what_does_not_fit_together_is_told_with_unknown_fields_and_each_reason_apart() -> None:
    wrong = {
        "resources": {"nodes": 3},
        "fault_tolerance": {"spares": 2, "on_nan": "roll_back", "max_restarts": 0},
        "initial_weights": "rel/path",
        "extra": 1,
    }
    found = told({**SPEC, **wrong, "model": {"kind": "mlp", "hiden": [1]}})
    assert [each[:45] for each in found] == [
        "Extra inputs are not permitted",
        "Extra inputs are not permitted",
        "fault_tolerance.on_nan=roll_back goes back at",
        "initial_weights=rel/path is not an absolute p",
        "fault_tolerance.spares=2 is for jobs that clo",
        "strategy single is one process, but resources",
    ]


def test_a_wrong_value_is_told_without_what_might_follow_from_it() -> None:
    assert len(told({**SPEC, "resources": {"nodes": 3}, "priority": "high"})) == 1


def test_a_place_is_found_through_unions_and_lists() -> None:
    document = {"model": {"kind": "mlp", "hidden": [1, "x"]}}
    assert place_in(document, ("model", "mlp", "hidden", 1)) == ("model", "hidden", 1)
    assert without(document, [("model", "kind")]) == {"model": {"hidden": [1, "x"]}}
