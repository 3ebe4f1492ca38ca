"""Values that follow from a job spec without being written in it, of each trial of an experiment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import ScriptWorkload

MICRO_BATCH = "training.micro_batch_size"
REPRODUCIBLE = "reproducible"


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
