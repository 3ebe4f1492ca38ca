"""Which steps of trials are read, so that of each at most about so many records are. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from paceline.api.services.experiments.metric_totals import MetricTotals
from paceline.api.services.history.steps import STEP_SECONDS

#: The most records of one trial, however few trials there are: more points show nothing that these do not.
MOST_RECORDS_OF_ONE = 5_000


def by_stride(totals: Mapping[str, MetricTotals], share: int) -> dict[int, list[str]]:
    """Jobs by the distance of the steps that are read of them, so that of each at most about `share` are.

    A job that does not tell of every step may tell of none of those that lie a distance apart: it is read whole, and where it is long for that it is absent."""
    found: defaultdict[int, list[str]] = defaultdict(list)
    for job_id, each in totals.items():
        told = each.count(STEP_SECONDS)
        if told * 10 >= each.last_step(STEP_SECONDS) * 9:
            found[max(1, -(-told // share))].append(job_id)
        elif told <= MOST_RECORDS_OF_ONE:
            found[1].append(job_id)
    return dict(found)


def steps_read(stride: int, last: int) -> range | None:
    """The steps up to `last` that lie a stride apart; None: all of them."""
    return None if stride == 1 else range(stride, last + 1, stride)
