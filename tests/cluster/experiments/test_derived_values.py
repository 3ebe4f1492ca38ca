"""Values that a trial's spec leaves to be derived."""

from __future__ import annotations

from typing import Any

from paceline.cluster.experiments.derived_values import derived_values

DOCUMENT: dict[str, Any] = {
    "name": "digits",
    "model": {"kind": "mlp", "hidden": [16]},
    "data": {"kind": "digits"},
    "training": {"steps": 100, "global_batch_size": 8},
}


def test_what_is_given_is_not_derived_and_what_is_no_spec_has_nothing() -> None:
    found = derived_values(DOCUMENT)
    assert found["reproducible"] is True
    assert found["training.micro_batch_size"] > 0
    given = derived_values({**DOCUMENT, "reproducible": True, "training": {**DOCUMENT["training"], "micro_batch_size": 2}})
    assert given == {}
    assert derived_values({"name": "x", "unknown": 1}) == {}


def test_a_strategy_changes_what_is_derived() -> None:
    of_shards = derived_values({**DOCUMENT, "parallelism": {"strategy": "fsdp"}, "resources": {"nodes": 2}})
    assert of_shards["reproducible"] is False
