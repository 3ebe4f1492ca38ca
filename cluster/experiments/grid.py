"""Expands an experiment spec into its trials. A configuration that a submission would refuse is a cell with its refusal; a spec of which nothing
can run is refused as a whole. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from paceline.cluster.experiments.cells import COMMUNICATION, NOT_WORK, WORLD_SIZE, Combination, cells_of
from paceline.cluster.experiments.errors import ExperimentRefusedError, Refusal
from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.rungs import rung_steps
from paceline.cluster.experiments.spec import MOST_TRIALS, ExperimentSpec, Span
from paceline.cluster.experiments.values import combinations, count_combinations, why_unstorable
from paceline.training.spec.changes import NoFieldsError, field_at
from paceline.training.spec.job import JobSpec
from paceline.training.spec.refusals import in_words
from paceline.training.spec.shape import place_of

#: What a single process has no choice of.
_OF_RANKS = ("parallelism", "resources", COMMUNICATION)


@dataclass(frozen=True)
class TrialGrid:
    axes: tuple[str, ...]  # paths that vary, and world_size
    cells: tuple[Cell, ...]  # configuration by configuration, the repeats of each side by side


def axes_of(spec: ExperimentSpec) -> tuple[str, ...]:
    return (*spec.paths, *((WORLD_SIZE,) if spec.world_sizes else ()))


def expand(spec: ExperimentSpec) -> TrialGrid:
    """Return all trials of a spec; none of one whose search draws them while it runs. Raises ExperimentRefusedError."""
    check(spec)
    if spec.search is not None:
        probe(spec)
        return TrialGrid(axes_of(spec), ())
    cells, errors = list[Cell](), list[ValidationError]()
    seen = set[str]()
    for configuration in configurations(spec):
        try:
            found, error = cells_of(spec, configuration, len(cells))
        except NoFieldsError as wrong:
            raise ExperimentRefusedError([_no_fields(spec, configuration, wrong)]) from None
        if found[0].key in seen:
            continue
        seen.add(found[0].key)
        cells += found
        if error is not None:
            errors.append(error)
    if errors and all(cell.refusal for cell in cells if not cell.baseline):
        raise ExperimentRefusedError(_common(spec, errors))
    return TrialGrid(axes_of(spec), tuple(cells))


def configurations(spec: ExperimentSpec) -> Iterator[Combination]:
    """Yield the configurations in the order of the grid: the single process of each combination first, world sizes fastest."""
    for values in combinations(spec):
        if spec.baseline:
            yield Combination({path: value for path, value in values.items() if path.split(".")[0] not in _OF_RANKS}, 1, baseline=True)
        yield from (Combination(values, ranks) for ranks in spec.world_sizes)
        if not spec.world_sizes:
            yield Combination(values)


def probe(spec: ExperimentSpec) -> None:
    """Raise ExperimentRefusedError where neither the first nor the last of all values that a search may draw makes a job."""
    ends = _ends_of_search(spec)
    try:
        errors = [cells_of(spec, each, 0)[1] for each in ends]
    except NoFieldsError as wrong:
        raise ExperimentRefusedError([_no_fields(spec, ends[0], wrong)]) from None
    found = [error for error in errors if error is not None]
    if len(found) == len(ends):
        raise ExperimentRefusedError(_common(spec, found))


def samples_of_search(spec: ExperimentSpec) -> list[Cell]:
    """Return trials like those that a search will draw: of the first and of the last of all values, where they make a job."""
    cells = [cells_of(spec, each, 0)[0][0] for each in _ends_of_search(spec)]
    return [cell for cell in cells if cell.refusal is None]


def _ends_of_search(spec: ExperimentSpec) -> list[Combination]:
    assert spec.search is not None
    return [Combination({path: _ends_of(axis)[end] for path, axis in spec.search.parameters.items()}) for end in (0, 1)]


def _ends_of(axis: Sequence[Any] | Span) -> tuple[Any, Any]:
    return (axis.low, axis.high) if isinstance(axis, Span) else (axis[0], axis[-1])


def check(spec: ExperimentSpec) -> None:
    """Raise ExperimentRefusedError for what no configuration can make right."""
    if (found := why_unstorable(spec.model_dump(mode="python"))) is not None:
        raise ExperimentRefusedError([Refusal(found[0], "unstorable", found[1])])
    if (idle := next((path for path in spec.paths if path.split(".")[0] in NOT_WORK), None)) is not None:
        message = f"{idle} changes nothing that a trial computes, so its values would be one and the same trial"
        raise ExperimentRefusedError([Refusal(place_in_spec(spec, idle.split(".")), "varies_nothing", message, "vary another field")])
    trials = count_combinations(spec) * (len(spec.world_sizes) or 1) * spec.repeats
    if trials > MOST_TRIALS:
        message = f"this comes to {trials:,} trials; the limit is {MOST_TRIALS:,}"
        raise ExperimentRefusedError(
            [Refusal(("grid",), "too_many_trials", message, "use fewer values or repeats, or draw some with search")]
        )
    if spec.search is not None and (taken := [name for name in ("grid", "zip", "world_sizes", "baseline") if getattr(spec, name)]):
        message = f"search draws values in place of a grid, and {taken[0]} is one"
        raise ExperimentRefusedError(
            [Refusal((taken[0],), "search_and_grid", message, "move its paths to search.parameters, or leave it out")]
        )
    if spec.scaling == "weak" and not spec.world_sizes:
        message = "weak scaling is along world_sizes, and there are none"
        raise ExperimentRefusedError([Refusal(("scaling",), "no_world_sizes", message, "give world_sizes, or leave scaling out")])
    if spec.scaling == "weak" and "training.global_batch_size" not in spec.paths and not _has_batch(spec):
        message = "weak scaling multiplies training.global_batch_size by the number of ranks, and the job does not give it"
        raise ExperimentRefusedError([Refusal(("scaling",), "no_batch_size", message, "set job.training.global_batch_size, or use strong")])

    if spec.halving is not None and (refusal := _why_not_halved(spec)):
        raise ExperimentRefusedError([refusal])


def _why_not_halved(spec: ExperimentSpec) -> Refusal | None:
    if spec.baseline:
        message = "a baseline runs to the end, and a halving stops trials before it"
        return Refusal(("baseline",), "halving_and_baseline", message, "leave one of them out")
    for path in ("training.steps", "training.epochs", "training.pause_at_steps", "training"):
        if path in spec.paths:
            message = f"halving compares trials after the same steps, and {path} varies"
            return Refusal(place_in_spec(spec, path.split(".")), "halving_of_lengths", message, "leave one of them out")
    try:
        rung_steps(spec)
    except ValueError as error:
        return Refusal(("halving", "min_steps"), "no_rung", str(error))
    return None


def _has_batch(spec: ExperimentSpec) -> bool:
    return field_at(spec.job, ("training", "global_batch_size")) is not None


# --- why all of it is refused


def _common(spec: ExperimentSpec, errors: Sequence[ValidationError]) -> list[Refusal]:
    """What is wrong with every configuration; if that is nothing, what is wrong with the first one."""
    each = [{(error["type"], error["loc"]): error for error in found.errors(include_url=False)} for found in errors]
    shared = [error for key, error in each[0].items() if all(key in other for other in each)]
    return [_refusal(spec, error) for error in shared or each[0].values()]


def _refusal(spec: ExperimentSpec, error: Mapping[str, Any]) -> Refusal:
    place = place_of(JobSpec, error["loc"])
    way_out = (error.get("ctx") or {}).get("way_out")
    message = in_words(error) or f"{place.spoken}: {error['msg']}"
    return Refusal(place_in_spec(spec, place.path), str(error["type"]), message, None if way_out is None else str(way_out))


def place_in_spec(spec: ExperimentSpec, path: Sequence[str]) -> tuple[str, ...]:
    """Return where in the experiment spec a field of its jobs is given: by an axis, or in the base document."""
    dotted = ".".join(path)
    within = [axis for axis in spec.paths if dotted == axis or dotted.startswith(f"{axis}.") or axis.startswith(f"{dotted}.")]
    if not within:
        by_ranks = spec.world_sizes and dotted in ("resources", "resources.slots")
        return ("world_sizes",) if by_ranks else ("job", *path)
    if within[0] in spec.grid:
        return ("grid", within[0])
    table = next((number for number, table in enumerate(spec.zip) if within[0] in table), None)
    return ("search", "parameters", within[0]) if table is None else ("zip", str(table), within[0])


def _no_fields(spec: ExperimentSpec, configuration: Combination, error: NoFieldsError) -> Refusal:
    path = next((path for path in configuration.values if error.key in path.split(".")), None)
    place = place_in_spec(spec, path.split(".")) if path else ("job",)
    return Refusal(place, "no_fields", str(error), "name a field of the job spec, as `optimizer.lr`")
