"""Values that follow from a job spec without being written in it, of each trial of an experiment. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from paceline.cluster.experiments.analysis.configurations import canonical
from paceline.cluster.experiments.facts import TrialFacts
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import ScriptWorkload

MICRO_BATCH = "training.micro_batch_size"
REPRODUCIBLE = "reproducible"


def with_derived(facts: Sequence[TrialFacts], documents: Mapping[int, Mapping[str, Any]]) -> list[TrialFacts]:
    """Return the facts with what the job spec of each trial, by its index, leaves to be derived.

    Repeats differ in their seed at most, from which nothing is derived: of each configuration one spec is parsed.
    """
    known: dict[tuple[str, bool], dict[str, Any]] = {}
    for fact in facts:
        if fact.index in documents and (key := _configuration(fact)) not in known:
            known[key] = derived_values(documents[fact.index])
    return [replace(fact, derived=known[_configuration(fact)]) if fact.index in documents else fact for fact in facts]


def _configuration(fact: TrialFacts) -> tuple[str, bool]:
    return canonical(fact.values), fact.baseline


def derived_values(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by path that the spec of a trial leaves to be derived; none where it is no spec any more, or gives them itself."""
    try:
        spec = JobSpec.model_validate(document)
    except ValidationError:
        return {}
    found: dict[str, Any] = {} if spec.reproducible is not None else {REPRODUCIBLE: derived.is_reproducible(spec)}
    if (
        not isinstance(spec.workload, ScriptWorkload)
        and derived.training_of(spec).micro_batch_size is None
        and not spec.parallelism.is_auto
    ):
        found[MICRO_BATCH] = derived.micro_batch_size(spec)
    return found
