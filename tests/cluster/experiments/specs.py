"""Experiment specs and trials for tests: valid by default, each argument overrides one thing."""

from __future__ import annotations

from typing import Any

from paceline.cluster.experiments.policy import KnownTrial
from paceline.cluster.experiments.spec import ExperimentSpec

JOB: dict[str, Any] = {
    "model": {"kind": "mlp", "hidden": [16]},
    "data": {"kind": "digits"},
    "optimizer": {"kind": "adamw"},
    "training": {"steps": 10, "global_batch_size": 8},
}


def experiment(**changes: Any) -> ExperimentSpec:
    return ExperimentSpec.model_validate({"name": "lr", "job": JOB} | changes)


def job(**changes: Any) -> dict[str, Any]:
    return JOB | changes


def trial(index: int = 0, **changes: Any) -> KnownTrial:
    """A trial that waits, of a configuration of its own."""
    columns: dict[str, Any] = {"configuration": index, "repeat": 0, "values": {}, "world_size": 1, "state": "waiting"}
    return KnownTrial(index=index, **(columns | changes))
