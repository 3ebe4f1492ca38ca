"""One configuration of an experiment as a job spec: the base document with its values, checked as a submission would be. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.rungs import ladder
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.training.schema.parallelism import AXIS_ALIASES, OF_PIPELINES, OF_SHARDING
from paceline.training.spec.changes import field_at, with_field, without_fields
from paceline.training.spec.job import JobSpec
from paceline.training.spec.refusals import told

WORLD_SIZE = "world_size"
#: The section of a job spec that is for several ranks only.
COMMUNICATION = "communication"
STEPS, PAUSES = ("training", "steps"), ("training", "pause_at_steps")
SLOTS, STRATEGY, BATCH, SEED = (
    ("resources", "slots"),
    ("parallelism", "strategy"),
    ("training", "global_batch_size"),
    ("training", "seed"),
)
#: Ways to give the size of a job, which a number of ranks replaces.
SIZES = ("nodes", "slots_per_node", "slots")
#: What is for several ranks only.
OF_WORLDS = (*AXIS_ALIASES, *AXIS_ALIASES.values(), *OF_SHARDING, *OF_PIPELINES)
#: Fields of a job spec that are not the work.
NOT_WORK = frozenset({"version", "name", "project", "description", "labels", "priority"})
#: Labels of a trial's job.
EXPERIMENT_LABEL, TRIAL_LABEL = "experiment", "trial"
LONGEST_NAME = 63
#: How many things that are wrong with a configuration are told.
MOST_TOLD = 3


@dataclass(frozen=True)
class Combination:
    """One combination of values. `ranks` None: as many as the base document asks for. `baseline`: added as a single process."""

    values: Mapping[str, Any]
    ranks: int | None = None
    baseline: bool = False


def cells_of(spec: ExperimentSpec, configuration: Combination, first_index: int) -> tuple[list[Cell], ValidationError | None]:
    """Return the repeats of a configuration, with indices from `first_index`, and why the schema refuses it, if it does.

    Raises NoFieldsError where a path leads through a value that has no fields."""
    document = document_of(spec, configuration)
    values = _effective_values(spec, configuration, document)
    cells, refused = list[Cell](), None
    for repeat in range(spec.repeats):
        mine = _of_repeat(spec, document, repeat, first_index + repeat)
        job, error = _checked(mine)
        values = _as_numbers(values, job) if job else values
        refused = refused or error
        work = given(job) if job else mine
        cells.append(
            Cell(
                index=first_index + repeat,
                key=_key(work, repeat),
                values=values,
                repeat=repeat,
                document=mine,
                baseline=configuration.baseline,
                refusal=told(error, MOST_TOLD) if error else None,
                world_size=job.world_size if job else configuration.ranks or 1,
            )
        )
    return cells, refused


def document_of(spec: ExperimentSpec, configuration: Combination) -> dict[str, Any]:
    """Return the base document with the values of a configuration and its number of ranks."""
    document = dict(spec.job)
    for path, value in configuration.values.items():
        document = with_field(document, path.split("."), value)
    if configuration.ranks is not None:
        document = with_field(without_fields(document, "resources", SIZES), SLOTS, configuration.ranks)
        if configuration.ranks == 1:
            document = with_field(without_fields(document, "parallelism", OF_WORLDS), STRATEGY, "single")
            document = {part: value for part, value in document.items() if part != COMMUNICATION}
    if spec.scaling == "weak":
        batch = field_at(document, BATCH)
        if isinstance(batch, int | float) and not isinstance(batch, bool):
            document = with_field(document, BATCH, batch * (configuration.ranks or 1))
    if spec.halving is not None:
        document = with_field(document, PAUSES, list(ladder(spec.halving, int(field_at(spec.job, STEPS)))))
    return document


def job_name(experiment: str, index: int) -> str:
    """Return `<experiment>-<index>`, with the experiment's name cut where the whole would be too long for a job."""
    ending = f"-{index}"
    return experiment[: LONGEST_NAME - len(ending)].rstrip("._-") + ending


def named(document: Mapping[str, Any], spec: ExperimentSpec, index: int) -> dict[str, Any]:
    """Return the document with the name, project and labels of the experiment's trial `index`."""
    labels = {**spec.labels, EXPERIMENT_LABEL: spec.name, TRIAL_LABEL: str(index)}
    return {**document, "name": job_name(spec.name, index), "project": spec.project, "labels": labels}


def _of_repeat(spec: ExperimentSpec, document: dict[str, Any], repeat: int, index: int) -> dict[str, Any]:
    seed = field_at(document, SEED) or 0
    if spec.vary_seed and repeat and isinstance(seed, int):
        document = with_field(document, SEED, seed + repeat)
    return named(document, spec, index)


def _effective_values(spec: ExperimentSpec, configuration: Combination, document: Mapping[str, Any]) -> dict[str, Any]:
    """The values as they are in the document: one process has no strategy but `single`, no axes of a mesh, and nothing to send."""
    values = {
        path: field_at(document, path.split(".")) if path.split(".")[0] in ("parallelism", COMMUNICATION) else value
        for path, value in configuration.values.items()
    }
    for path in spec.paths:
        if path.split(".")[0] == "resources":
            values[path] = field_at(document, path.split("."))
    return values | ({WORLD_SIZE: configuration.ranks} if configuration.ranks is not None and spec.world_sizes else {})


def _as_numbers(values: Mapping[str, Any], job: JobSpec) -> dict[str, Any]:
    """Return the values with the numbers that the job reads in texts: `"1e-3"` in quotes is 0.001 in every table and on every axis."""
    document = job.model_dump(mode="json")
    read = {path: field_at(document, path.split(".")) for path, value in values.items() if isinstance(value, str)}
    return {**values, **{path: number for path, number in read.items() if isinstance(number, int | float) and not isinstance(number, bool)}}


def _checked(document: Mapping[str, Any]) -> tuple[JobSpec | None, ValidationError | None]:
    try:
        return JobSpec.model_validate(document), None
    except ValidationError as error:
        return None, error


def given(job: JobSpec) -> dict[str, Any]:
    """Return the document of a job without the fields that have their defaults, so that a field which a later version adds changes no key.

    The `kind` of a section is kept: it is the default of a class of its own, and the other fields of two kinds may be equal.
    """
    return _with_kinds(job.model_dump(mode="json", exclude_defaults=True), job.model_dump(mode="json"))


def _with_kinds(lean: Mapping[str, Any], full: Mapping[str, Any]) -> dict[str, Any]:
    nested = {name: _with_kinds(value, full[name]) if isinstance(value, Mapping) else value for name, value in lean.items()}
    return {**({"kind": full["kind"]} if "kind" in full else {}), **nested}


def _key(document: Mapping[str, Any], repeat: int) -> str:
    work = {name: value for name, value in document.items() if name not in NOT_WORK}
    text = json.dumps([work, repeat], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
