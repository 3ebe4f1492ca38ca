"""The curves of a job on a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Curve, JobMetrics
from paceline.cli.completion import JobRef
from paceline.cli.curves import Point, points_of
from paceline.cli.job_facts import WAY_TO_CURVES
from paceline.cli.render import formats
from paceline.cli.render.output import table
from paceline.cli.render.sparkline import sparkline
from paceline.cli.session import Session, with_session

CURVE_WIDTH = 24


@with_session
def metrics(
    session: Session,
    job: JobRef,
    names: Annotated[str | None, typer.Option("--names", help="only these, e.g. loss,learning_rate; default: the job's own")] = None,
    ranks: Annotated[str, typer.Option(help="of which ranks, e.g. 0,3")] = "0",
    first_step: Annotated[int | None, typer.Option(min=0, help="from this step on")] = None,
    last_step: Annotated[int | None, typer.Option(min=0, help="up to this step")] = None,
) -> None:
    """Show a job's curves: the newest value of each metric, its range, and the curve in a line."""
    with session.client() as client:
        job_id = client.job_id(job)
        document = client.get(f"/metrics/jobs/{job_id}", names=names, ranks=ranks, first_step=first_step, last_step=last_step)
    session.emit(document, lambda: _table(parsed(document, JobMetrics)))


def _table(metrics: JobMetrics) -> str:
    by_series: dict[tuple[str, int], list[Curve]] = {}
    for curve in metrics.curves:
        by_series.setdefault((curve.name, curve.rank), []).append(curve)
    series = {key: points_of(curves) for key, curves in by_series.items()}
    with_ranks = len({rank for _, rank in series}) > 1
    rows = [_row(name, rank, points, with_ranks=with_ranks) for (name, rank), points in series.items() if points]
    headers = ["METRIC", *(["RANK"] if with_ranks else []), "STEP", "LAST", "LEAST", "MOST", "CURVE"]
    return table(headers, rows, empty=_empty(metrics))


def _row(name: str, rank: int, points: list[Point], *, with_ranks: bool) -> list[str]:
    values = [value for _, value in points]
    numbers = [value for value in values if value == value] or values
    shown = [formats.quantity(value) for value in (values[-1], min(numbers), max(numbers))]
    return [name, *([str(rank)] if with_ranks else []), str(points[-1][0]), *shown, sparkline(values, CURVE_WIDTH)]


def _empty(metrics: JobMetrics) -> str:
    return f"no such points; it has reported {', '.join(metrics.names)}" if metrics.names else f"it has reported no metric; {WAY_TO_CURVES}"
