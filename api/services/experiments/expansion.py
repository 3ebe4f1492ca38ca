"""Expands an experiment's grid beside the event loop, and answers one of which nothing can run with a problem."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import FieldError
from paceline.cluster.experiments.errors import ExperimentRefusedError, Refusal
from paceline.cluster.experiments.grid import TrialGrid, expand
from paceline.cluster.experiments.search import MissingOptunaError, require_optuna
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.cluster.experiments.values import count_combinations

#: Trials that are expanded in a moment: a job spec is validated in 0.2 ms.
FEW_TRIALS = 500


async def expanded(services: Services, spec: ExperimentSpec) -> TrialGrid:
    """The trials of a spec. Raises ProblemError `invalid_experiment` where nothing of it can run, `search_unavailable` without Optuna."""
    if spec.search is not None:
        await _require_optuna()
    try:
        return await expand_apart(services, spec)
    except ExperimentRefusedError as error:
        fields = field_errors(error.refusals)
        more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
        raise ProblemError("invalid_experiment", f"{fields[0].pointer}: {fields[0].message}{more}", errors=fields) from None


async def _require_optuna() -> None:
    try:
        await asyncio.to_thread(require_optuna)
    except MissingOptunaError as error:
        raise ProblemError("search_unavailable", str(error)) from None


async def expand_apart(services: Services, spec: ExperimentSpec) -> TrialGrid:
    """Expand in a thread, or large grids in a process of their own. Raises ExperimentRefusedError."""
    trials = count_combinations(spec) * (len(spec.world_sizes) or 1) * spec.repeats
    return await services.planner.run(expand, spec, small=trials <= FEW_TRIALS)


def field_errors(refusals: Sequence[Refusal]) -> list[FieldError]:
    return [
        FieldError(pointer=_pointer(each.place), code=each.code, message=f"{each.message}{_way_out(each)}", hint=each.way_out)
        for each in refusals
    ]


def _way_out(refusal: Refusal) -> str:
    return f"; {refusal.way_out}" if refusal.way_out and refusal.way_out not in refusal.message else ""


def _pointer(place: Sequence[str]) -> str:
    return "".join(f"/{part}" for part in (name.replace("~", "~0").replace("/", "~1") for name in place))
