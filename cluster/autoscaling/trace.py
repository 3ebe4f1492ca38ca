"""A week of jobs as a team submits them: made up from a seed, with the shape of published traces of research clusters.

Arrivals follow the hours of a working day, a weekend has a fifth of them, most jobs are small and short, and a few wide and long ones take most of the
slot-hours (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019; Hu et al.,
"Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

DAY_SECONDS, HOUR_SECONDS = 86_400.0, 3600.0
#: Slots of a job, and how often.
SIZES = ((1, 0.52), (2, 0.12), (4, 0.12), (8, 0.14), (16, 0.06), (32, 0.04))
#: Run times are log-normal: the median in seconds, and the standard deviation of the logarithm.
MEDIAN_SECONDS, SIGMA = 1500.0, 1.6
LONGEST_SECONDS = 2 * DAY_SECONDS
WEEKEND_SHARE, NIGHT_SHARE = 0.2, 0.15
URGENT_SHARE = 0.1


@dataclass(frozen=True)
class TracedJob:
    """A job of a trace. Times are seconds since its start, a Monday at midnight."""

    id: str
    arrives: float
    slots: int
    runs: float  # seconds on all of its slots
    priority: int


def week(seed: int, jobs_per_working_hour: float = 20.0, days: int = 7) -> list[TracedJob]:
    """Make up the jobs of `days` days, in the order of their arrival. The same seed gives the same jobs."""
    drawn = random.Random(seed)
    found, now = list[TracedJob](), 0.0
    while True:
        now += drawn.expovariate(jobs_per_working_hour / HOUR_SECONDS)
        if now >= days * DAY_SECONDS:
            return found
        if drawn.random() > arrival_share(now):
            continue
        (slots,) = drawn.choices([size for size, _ in SIZES], [share for _, share in SIZES])
        runs = min(LONGEST_SECONDS, max(30.0, drawn.lognormvariate(math.log(MEDIAN_SECONDS), SIGMA)))
        urgent = drawn.random() < URGENT_SHARE
        found.append(TracedJob(f"job-{len(found):04d}", now, slots, runs, 10 if urgent else 0))


def arrival_share(second: float) -> float:
    """How many jobs arrive at this second, as a share of those at the busiest hour."""
    day, hour = int(second // DAY_SECONDS) % 7, second % DAY_SECONDS / HOUR_SECONDS
    working = math.exp(-(((hour - 14.5) / 4.5) ** 2))  # the afternoon is the busiest
    return max(NIGHT_SHARE, working) * (WEEKEND_SHARE if day >= 5 else 1.0)
