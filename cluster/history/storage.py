"""The coordinator's records of jobs, and the order in which they are deleted when there are too many. Pure.

Each kind of data has an age at which it is deleted. Beyond that, the metrics database has a size: when it is larger, a job that takes
more than its share (`JOB_SHARE`) gives way first, then the least missed data (`PRESSURE`). Within its share, nothing of a job's last hours
goes before everything else has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from paceline.cluster.history.node_readings import KeepReadings
from paceline.monitoring.rollup import LEVELS

#: Bytes of a row in the database besides its text, indexes included: measured on SQLite, and about the same on PostgreSQL.
POINT_BYTES, LINE_BYTES, BUCKET_BYTES = 150, 100, 120


class StorageKind(StrEnum):
    POINTS = "points"
    LINES = "lines"


def curve_kind(level: int) -> str:
    """The kind of a level of roll-ups, which are counted, and deleted, level by level."""
    return f"curves_{level}"


CURVES = tuple(curve_kind(level) for level in LEVELS)
LEVEL_OF = dict(zip(CURVES, LEVELS, strict=True))
#: The coarse levels are a ten-thousandth of the points: they only go with the job.
FINE_CURVES = tuple(curve_kind(level) for level in LEVELS if level <= 1_000)


def has_points_from(step: int, gone_to: Mapping[str, int]) -> bool:
    """Whether raw points are kept from `step` on, given the highest step of each kind of which something was deleted."""
    return gone_to.get(StorageKind.POINTS, -1) < step


def finest_curves_from(step: int, gone_to: Mapping[str, int]) -> int:
    """Steps in a bucket of the finest roll-ups that are kept from `step` on."""
    return next((LEVEL_OF[kind] for kind in CURVES if gone_to.get(kind, -1) < step), LEVELS[-1])


@dataclass(frozen=True)
class KeepPolicy:
    """How long, and how much, is kept; made from the coordinator's settings."""

    points: timedelta
    curves: timedelta
    lines: timedelta
    events: timedelta
    artifacts: timedelta
    ranks: timedelta
    readings: KeepReadings
    bytes: int  # of the metrics database; 0: no limit
    recent: timedelta  # of a job that has not ended: goes last

    def sentences(self) -> list[str]:
        """The policy in words, each sentence with the name of its setting."""
        size = gibibytes(self.bytes) if self.bytes else "no limit"
        return [
            f"Raw points are kept for {_days(self.points)} (PACELINE_KEEP_POINTS_DAYS).",
            f"Curves of 10 steps and more are kept for {_days(self.curves)} after a job's last point (PACELINE_KEEP_CURVES_DAYS).",
            f"Log lines are kept for {_days(self.lines)} (PACELINE_KEEP_LINES_DAYS).",
            f"Events of ended jobs, those of checkpoints, and the records of deleted checkpoints are kept for {_days(self.events)} "
            "(PACELINE_KEEP_EVENTS_DAYS).",
            f"Traces, gradients and files are kept for {_days(self.artifacts)} after their job's end (PACELINE_KEEP_ARTIFACTS_DAYS).",
            f"Ranks of earlier generations are kept for {_days(self.ranks)} after their job's end (PACELINE_KEEP_RANKS_DAYS).",
            f"Readings of nodes and cards are kept for {self.readings.raw / timedelta(hours=1):g} hours by the second "
            f"(PACELINE_KEEP_READINGS_HOURS), {_days(self.readings.age_of(60))} by the minute and a tenth of that by 10 s "
            f"(PACELINE_KEEP_READINGS_DAYS), {_days(self.readings.coarse)} by 10 minutes (PACELINE_KEEP_CURVES_DAYS).",
            f"Points, curves, log lines and readings together: {size} (PACELINE_KEEP_SIZE). Above it old readings by the second go first; "
            f"then the oldest points and lines of a job that alone has over {JOB_SHARE:.0%} of it with these, also while it runs; then the oldest "
            "ended jobs' raw points.",
            f"The last {self.recent / timedelta(hours=1):g} hours of all other jobs that have not ended go last (PACELINE_KEEP_RECENT_HOURS).",
            "Checkpoints follow each job's own checkpoint policy, also after its end.",
            "Jobs, their generations and incidents are kept for good: a few hundred bytes each, and the job's spec.",
            "Until a job has ended, its other events and the ranks of its earlier generations stay, however old they are; of very many the newest.",
        ]


def gibibytes(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"


def _days(age: timedelta) -> str:
    return f"{age.days} day{'' if age.days == 1 else 's'}"


@dataclass(frozen=True)
class StoredData:
    """One kind of data of one job. The caller gives these in the order in which data was last added, the oldest first."""

    job_id: str
    kind: str
    bytes: int
    ended: bool


@dataclass(frozen=True)
class Removal:
    """An order to delete data of this kind, the oldest first. `spare_recent`: data from within the policy's recent hours stays; `most`: bytes
    that this order may take, None: all."""

    job_id: str
    kind: str
    spare_recent: bool
    why: str
    most: int | None = None


@dataclass(frozen=True)
class PruningStage:
    """One step of eviction: these kinds of data, of ended jobs or of the others."""

    kinds: tuple[str, ...]
    ended: bool
    spare_recent: bool = False


#: What goes first when there is too much, but for what is over a job's share.
PRESSURE = (
    PruningStage((StorageKind.POINTS,), ended=True),
    PruningStage((StorageKind.LINES,), ended=True),
    PruningStage((StorageKind.POINTS, StorageKind.LINES), ended=False, spare_recent=True),
    *(PruningStage((kind,), ended) for kind in FINE_CURVES[:2] for ended in (True, False)),
    PruningStage(CURVES[2:], ended=True),
    PruningStage((StorageKind.POINTS, StorageKind.LINES), ended=False),
    PruningStage(FINE_CURVES[2:], ended=False),
)
#: A little more goes than must, so that not every few rows are a pass of their own.
SLACK = 0.02
#: The part of the limit that one job's points and lines may take. What is over goes before anything of any other job: a script that prints
#: without end would push out all that others have recorded.
JOB_SHARE = 0.25


def excess(total: int, policy: KeepPolicy) -> int:
    """Bytes that have to go now; 0 where there is no limit, or `total` is below it."""
    return max(0, total - int(policy.bytes * (1 - SLACK))) if policy.bytes and total > policy.bytes else 0


def eviction_order(stored: Sequence[StoredData], policy: KeepPolicy) -> Iterator[Removal]:
    """The removals when there is too much data, in order; the caller stops when enough is deleted. First goes what is over a job's share;
    then of ended jobs the oldest, of the others the largest."""
    limit = f"the limit of {gibibytes(policy.bytes)} (PACELINE_KEEP_SIZE)"
    by_size = sorted(stored, key=lambda each: each.bytes, reverse=True)
    yield from _over_share(by_size, policy, limit)
    for stage in PRESSURE:
        recent = not stage.ended and not stage.spare_recent and stage.kinds[0] not in CURVES
        why = f"{limit} leaves no room for the last hours of a job that has not ended" if recent else f"{limit} was passed"
        for each in stored if stage.ended else by_size:
            if each.kind in stage.kinds and each.ended == stage.ended and each.bytes > 0:
                yield Removal(each.job_id, each.kind, stage.spare_recent, why)


def _over_share(by_size: Sequence[StoredData], policy: KeepPolicy, limit: str) -> Iterator[Removal]:
    """Removals of what jobs have stored beyond their share, the largest kind of the largest job first."""
    appended = [each for each in by_size if each.kind in (StorageKind.POINTS, StorageKind.LINES)]
    taken: Counter[str] = Counter()
    for each in appended:
        taken[each.job_id] += each.bytes
    why = f"{limit} was passed, and the points and lines of this job alone take over {JOB_SHARE:.0%} of it"
    for each in appended:
        most = min(each.bytes, taken[each.job_id] - int(policy.bytes * JOB_SHARE))
        if most > 0:
            taken[each.job_id] -= most
            yield Removal(each.job_id, each.kind, spare_recent=False, why=why, most=most)


def loss(kind: str, rows: int, to_step: int | None, why: str) -> str:
    """One sentence for the job's history."""
    if kind == StorageKind.LINES:
        return f"{rows:,} log lines were removed: {why}"
    what = "raw points" if kind == StorageKind.POINTS else f"curves in steps of {LEVEL_OF[kind]:,}"
    return f"{what} up to step {to_step or 0:,} were removed: {why}"
