"""What a job runs: a model that is built in, an entrypoint, or a script. Pure; chosen from the fields of a job spec in one place."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.training.models.catalog import Model
from paceline.training.schema.data import Data
from paceline.training.schema.parts import inconsistent
from paceline.training.schema.script import Script
from paceline.training.schema.training import TrainingLength


@dataclass(frozen=True)
class BuiltinWorkload:
    """A model and data that come with Paceline."""

    model: Model
    data: Data
    training: TrainingLength


@dataclass(frozen=True)
class EntrypointWorkload:
    """A model and data of the user's own, which `entrypoint` returns as a `paceline.Task`."""

    entrypoint: str
    training: TrainingLength


@dataclass(frozen=True)
class ScriptWorkload:
    """A program of the user's own, which trains by itself."""

    script: Script


Workload = BuiltinWorkload | EntrypointWorkload | ScriptWorkload


def workload_of(
    model: Model | None, data: Data | None, entrypoint: str | None, script: Script | None, training: TrainingLength | None
) -> Workload:
    """Return the workload that these fields of a job spec make. Raises PydanticCustomError where they make none, or more than one."""
    choices = {"model": model, "entrypoint": entrypoint, "script": script}
    given = [name for name, choice in choices.items() if choice is not None]
    if len(given) != 1:
        raise inconsistent("give exactly one of model (with data), entrypoint and script; got {given}", given=", ".join(given) or "none")
    if (model is None) != (data is None):
        raise inconsistent("model and data belong together: give both or neither")
    if script is not None:
        if training is not None:
            raise inconsistent("leave training out: the script decides")
        return ScriptWorkload(script)
    if training is None:
        raise inconsistent("training is required: give steps or epochs")
    if entrypoint is not None:
        return EntrypointWorkload(entrypoint, training)
    assert model is not None  # the choice that is left, and its data
    assert data is not None
    return BuiltinWorkload(model, data, training)
