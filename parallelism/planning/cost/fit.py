"""Fit the speeds of machines to measured steps: a few physical parameters by robust least squares. Pure.

Minimized is the sum of Huber's loss (1964) of log(predicted / measured), by iteratively reweighted least squares with Levenberg's damping. Parameters are
positive, so their logarithms are fitted; each begins at a stated default, to which a weak prior holds it: what no trial shows stays where it was. So
that many parameters are not fitted to few trials, at most one is free for each two different configurations, in the order of `parameters.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.parallelism.planning.cost.errors import TooFewTrialsError
from paceline.parallelism.planning.cost.parameters import MeasuredPlan, Parameter, parameters_for
from paceline.parallelism.planning.cost.speeds import Speeds
from paceline.parallelism.planning.step_time import step_time

Vector = NDArray[np.float64]
#: Fewer different configurations say nothing: half of them is told by two parameters.
LEAST_TRIALS = 4
#: Errors beyond this count less, in proportion: what a trial is off by for reasons that are not in the model.
HUBER = 0.1
#: The prior's standard deviation, in units of log parameter over log error: a factor of 20 off the default weighs as much as an error of 0.05.
PRIOR = 60.0
ITERATIONS = 40
#: The fit has converged when a step changes its loss by less than this.
CONVERGED = 1e-4


@dataclass(frozen=True)
class FittedSpeeds:
    """Fitted speeds, and how they were come by."""

    speeds: Speeds
    fitted: tuple[str, ...]  # names of the parameters that the trials decided; the others are the defaults
    trials: int
    worst_error: float  # largest |predicted / measured - 1| of the trials that it was fitted to


@dataclass(frozen=True)
class ToldStep:
    """A measured step beside what a fit that had not seen it told."""

    measured: MeasuredPlan
    seconds: float

    @property
    def error(self) -> float:
        return self.seconds / self.measured.seconds - 1


def fit(plans: Sequence[MeasuredPlan], start: Speeds) -> FittedSpeeds:
    """Fit `start` to measured steps. Raises TooFewTrialsError."""
    if len(plans) < LEAST_TRIALS:
        raise TooFewTrialsError(len(plans), LEAST_TRIALS)
    parameters = parameters_for(plans)
    speeds = _minimize(plans, start, parameters)
    errors = [abs(told(plan, speeds).error) for plan in plans]
    return FittedSpeeds(speeds, tuple(each.name for each in parameters), len(plans), max(errors))


def told(plan: MeasuredPlan, speeds: Speeds) -> ToldStep:
    return ToldStep(plan, step_time(plan.shape, plan.setup, speeds.on(plan.setup, plan.ranks_by_node), plan.loads).total)


def leave_half_out(plans: Sequence[MeasuredPlan], start: Speeds, seed: int = 0) -> list[ToldStep]:
    """Divide the trials at random into two halves and tell each half by a fit to the other one; in the order of `plans`.

    Raises TooFewTrialsError where a half does not suffice for a fit.
    """
    order = list(range(len(plans)))
    random.Random(seed).shuffle(order)
    halves = order[::2], order[1::2]
    found: dict[int, ToldStep] = {}
    for seen, unseen in (halves, halves[::-1]):
        speeds = fit([plans[index] for index in seen], start).speeds
        found |= {index: told(plans[index], speeds) for index in unseen}
    return [found[index] for index in range(len(plans))]


def _minimize(plans: Sequence[MeasuredPlan], start: Speeds, parameters: Sequence[Parameter]) -> Speeds:
    """Iteratively reweighted least squares on logarithms, with Levenberg's damping."""
    origin = np.log([each.get(start) for each in parameters])

    def put(point: Vector) -> Speeds:
        speeds = start
        for parameter, value in zip(parameters, np.exp(point), strict=True):
            speeds = parameter.put(speeds, float(value))
        return speeds

    def errors(point: Vector) -> Vector:
        speeds = put(point)
        return np.log([told(plan, speeds).seconds / plan.seconds for plan in plans])

    point, damping, found = origin.copy(), 1e-3, errors(origin)
    for _ in range(ITERATIONS):
        step = _step(_jacobian(errors, point, found), found, (point - origin) / PRIOR, damping)
        tried = errors(point + step)
        gain = _loss(found, point - origin) - _loss(tried, point + step - origin)
        if gain > 0:
            point, found, damping = point + step, tried, damping / 4
        else:
            damping *= 8
        if abs(gain) < CONVERGED:
            break
    return put(point)


def _step(slope: Vector, errors: Vector, prior: Vector, damping: float) -> Vector:
    """Return a step in which no parameter changes by more than a factor of e."""
    weights = np.minimum(1.0, HUBER / np.maximum(np.abs(errors), 1e-12))
    normal = slope.T @ (weights[:, None] * slope) + np.eye(len(prior)) / PRIOR**2
    downhill = -(slope.T @ (weights * errors) + prior / PRIOR)
    return np.clip(np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill), -1.0, 1.0)


def _loss(errors: Vector, moved: Vector) -> float:
    sizes = np.abs(errors)
    huber = np.where(sizes <= HUBER, sizes**2, 2 * HUBER * sizes - HUBER**2)
    return float(huber.sum() + ((moved / PRIOR) ** 2).sum())


def _jacobian(function: Callable[[Vector], Vector], point: Vector, found: Vector, width: float = 1e-4) -> Vector:
    moved = (function(point + width * direction) for direction in np.eye(len(point)))
    return np.stack([(each - found) / width for each in moved], axis=1)
