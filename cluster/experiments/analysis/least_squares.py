"""Least squares of relative errors with two parameters that are not negative. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
PARAMETERS = 2


@dataclass(frozen=True)
class TwoParameterFit:
    first: float
    second: float
    fitted: Sequence[float]
    worst_residual: float  # largest |fitted / measured - 1|


def fit_two(first: Sequence[float], second: Sequence[float], measured: Sequence[float]) -> TwoParameterFit | None:
    """Fit measured = a * first + b * second with a, b >= 0, minimizing the squares of fitted / measured - 1; measured values are positive.

    None: fewer than three points, or columns that are multiples of each other, so that the two parameters cannot be told apart.
    """
    target = np.asarray(measured, dtype=np.float64)
    columns = np.stack([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)], axis=1)
    if len(target) < PARAMETERS + 1:
        return None
    relative = columns / target[:, None]
    scale = relative.max(axis=0)
    if not (scale > 0).all() or np.linalg.matrix_rank(columns / columns.max(axis=0), tol=1e-6) < PARAMETERS:
        return None
    solution = _solve(relative / scale) / scale
    fitted = columns @ solution
    worst = float(np.abs(fitted / target - 1).max())
    return TwoParameterFit(float(solution[0]), float(solution[1]), [float(value) for value in fitted], worst)


def _solve(relative: Floats) -> Floats:
    """The coefficients for a target of ones: inside, or on the better edge where one of them would be negative."""
    inside = np.asarray(np.linalg.lstsq(relative, np.ones(len(relative)), rcond=None)[0], dtype=np.float64)
    if (inside >= 0).all():
        return inside
    edges = [_edge(relative, column) for column in range(PARAMETERS)]
    return min(edges, key=lambda edge: float(np.square(relative @ edge - 1).sum()))


def _edge(relative: Floats, column: int) -> Floats:
    alone = relative[:, column]
    solution = np.zeros(PARAMETERS)
    solution[column] = alone.sum() / np.square(alone).sum()
    return solution
