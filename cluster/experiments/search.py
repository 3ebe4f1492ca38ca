"""Draws values for the trials of a search with Optuna's samplers, without Optuna's storage: trials are kept where all others are.

`propose` is a function of the spec and of the trials that were drawn before: the successor of a coordinator that died goes on with the same
values. Each call builds a study in memory, tells it the history and asks it once (3 ms, and 150 ms after 2,000 trials). The first call
imports Optuna (0.4 s), so calls belong on a thread.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

from paceline.cluster.experiments.search_space import SearchSpace, Values
from paceline.cluster.experiments.spec import Metric, Search
from paceline.extras import pip_install

#: Draws until one is new. A space of which so many draws are all known is small, and is gone through in order.
MOST_DRAWS = 16


class MissingOptunaError(RuntimeError):
    """Optuna is not installed where the coordinator runs."""

    def __init__(self) -> None:
        super().__init__(
            "search draws values with Optuna, which is not installed with this coordinator; "
            f"{pip_install('experiments')} and start it again, or give a grid"
        )


@dataclass(frozen=True)
class PastTrial:
    """A trial that was drawn before. `value`: of the metric at `step`; None: not finite, or there is none yet."""

    values: Values
    outcome: Literal["completed", "stopped_early", "running", "failed", "left_out"]
    value: float | None = None
    step: int = 0


def require_optuna() -> ModuleType:
    """Import Optuna. Raises MissingOptunaError."""
    try:
        optuna = import_module("optuna")
    except ImportError:
        raise MissingOptunaError from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def propose(search: Search, metric: Metric, history: Sequence[PastTrial]) -> Values | None:
    """Return the values of the next trial, by path; None: every combination has been tried. `history`: all that were drawn, in their order.

    Trials that failed, and those whose metric is not finite, count as the worst, so that TPE keeps away from them. Raises
    MissingOptunaError."""
    optuna, space = require_optuna(), SearchSpace.of(search)
    tried = {space.key(past.values) for past in history}
    if len(tried) >= space.size:
        return None
    study = optuna.create_study(direction=metric.goal)
    if search.kind != "random":
        study.add_trials([told for past in history if (told := _told(optuna, space, past)) is not None])
    for attempt in range(MOST_DRAWS):
        study.sampler = _sampler(optuna, search, len(history), attempt)
        drawn = space.values_at(study.ask(space.distributions(optuna)).params)
        if space.key(drawn) not in tried:
            return drawn
    return next((values for values in space.in_order() if space.key(values) not in tried), None)


def _sampler(optuna: ModuleType, search: Search, number: int, attempt: int) -> Any:
    """A sampler with a seed of its own for each draw, so that no state has to be kept between them."""
    seed = random.Random(f"{search.seed}/{number}/{attempt}").getrandbits(32)
    return optuna.samplers.RandomSampler(seed=seed) if search.kind == "random" else optuna.samplers.TPESampler(seed=seed)


def _told(optuna: ModuleType, space: SearchSpace, past: PastTrial) -> Any:
    """The past trial as Optuna knows trials; None: it tells nothing, or is of another space.

    TPE puts every completed trial before every pruned one, whatever its value, and those last that were pruned without any."""
    places, states = space.places_of(past.values), optuna.trial.TrialState
    if past.outcome == "left_out" or places is None:
        return None
    if past.outcome == "running":
        known: dict[str, Any] = {"state": states.RUNNING}
    elif past.value is None or past.outcome == "failed":
        known = {"state": states.PRUNED}
    elif past.outcome == "stopped_early":
        known = {"state": states.PRUNED, "intermediate_values": {past.step: past.value}}
    else:
        known = {"state": states.COMPLETE, "value": past.value}
    return optuna.trial.create_trial(params=places, distributions=space.distributions(optuna), **known)
