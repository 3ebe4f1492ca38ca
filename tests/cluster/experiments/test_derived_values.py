"""Values that a trial's spec leaves to be derived."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paceline.cluster.experiments.derived_values import derived_values, with_derived
from paceline.cluster.experiments.facts import TrialFacts

BATCH = "training.global_batch_size"
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


def test_repeats_have_what_is_derived_from_one_of_them_and_a_trial_without_a_spec_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []

    def counted(document: Any) -> dict[str, Any]:
        parsed.append(document)
        return derived_values(document)

    monkeypatch.setattr("paceline.cluster.experiments.derived_values.derived_values", counted)
    facts = [trial(index, batch) for index, batch in enumerate((8, 8, 64, 64, 8))]
    documents = {each.index: {**DOCUMENT, "training": {"steps": 100, "global_batch_size": each.values[BATCH]}} for each in facts[:4]}
    found = with_derived(facts, documents)
    assert len(parsed) == 2
    assert [each.derived.get("training.micro_batch_size") for each in found] == [1, 1, 8, 8, None]
    assert [replace(each, derived={}) for each in found] == facts


def trial(index: int, batch: int) -> TrialFacts:
    return TrialFacts(
        index=index, values={BATCH: batch}, repeat=index % 2, baseline=False, state="completed", world_size=1, strategy="single"
    )
