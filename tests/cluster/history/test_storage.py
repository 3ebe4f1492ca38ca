"""What goes first when there is too much."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from paceline.cluster.history.node_readings import KeepReadings
from paceline.cluster.history.storage import CURVES, KeepPolicy, Removal, StorageKind, StoredData, eviction_order, excess, loss

DAY = timedelta(days=1)
READINGS = KeepReadings(raw=DAY / 4, fine=3 * DAY, coarse=365 * DAY)
POLICY = KeepPolicy(
    points=30 * DAY,
    curves=365 * DAY,
    lines=30 * DAY,
    events=365 * DAY,
    artifacts=90 * DAY,
    ranks=30 * DAY,
    readings=READINGS,
    bytes=1_000,
    recent=DAY,
)


def order(*stored: StoredData) -> list[tuple[str, str, bool]]:
    return [(each.job_id, each.kind, each.spare_recent) for each in eviction_order(stored, POLICY)]


def test_the_oldest_ended_jobs_raw_points_go_first() -> None:
    ended = [
        StoredData(name, kind, 10, ended=True) for name in ("old", "new") for kind in (StorageKind.POINTS, StorageKind.LINES, CURVES[0])
    ]
    living = StoredData("living", StorageKind.POINTS, 200, ended=False)
    assert order(*ended, living)[:5] == [
        ("old", StorageKind.POINTS, False),
        ("new", StorageKind.POINTS, False),
        ("old", StorageKind.LINES, False),
        ("new", StorageKind.LINES, False),
        ("living", StorageKind.POINTS, True),
    ]


def test_the_last_hours_of_a_living_job_go_after_everything_else_but_its_coarse_curves() -> None:
    living = [StoredData("living", kind, 10, ended=False) for kind in (StorageKind.POINTS, StorageKind.LINES, *CURVES)]
    ended = [StoredData("ended", kind, 10, ended=True) for kind in CURVES]
    removals = list(eviction_order([*living, *ended], POLICY))
    recent = removals.index(
        Removal(
            "living",
            StorageKind.POINTS,
            False,
            "the limit of 9.31e-07 GiB (PACELINE_KEEP_SIZE) leaves no room for the last hours of a job that has not ended",
        )
    )
    assert {(each.job_id, each.kind) for each in removals[recent:]} == {
        ("living", StorageKind.POINTS),
        ("living", StorageKind.LINES),
        ("living", CURVES[2]),
    }
    assert not [each for each in removals if each.job_id == "living" and each.kind in CURVES[3:]]


def test_of_living_jobs_the_largest_gives_way_first() -> None:
    small, large = StoredData("small", StorageKind.POINTS, 5, ended=False), StoredData("large", StorageKind.POINTS, 50, ended=False)
    assert [job for job, _, _ in order(small, large)] == ["large", "small", "large", "small"]


def test_a_job_that_fills_the_database_gives_way_before_anybody_else() -> None:
    """Curves of a year went before the lines of a script that printed without end."""
    others = [StoredData("ended", kind, 50, ended=True) for kind in (StorageKind.POINTS, StorageKind.LINES, *CURVES)]
    flood = [StoredData("flood", StorageKind.LINES, 900, ended=False), StoredData("flood", StorageKind.POINTS, 30, ended=False)]
    first, second = list(eviction_order([*others, *flood], POLICY))[:2]
    assert (first.job_id, first.kind, first.most, first.spare_recent) == ("flood", StorageKind.LINES, 680, False)
    assert "the points and lines of this job alone take over 25% of it" in first.why
    assert second.job_id == "ended"


def test_a_job_gives_way_only_down_to_its_share() -> None:
    stored = [StoredData("both", kind, 400, ended=True) for kind in (StorageKind.POINTS, StorageKind.LINES)]
    over = [(each.kind, each.most) for each in eviction_order(stored, POLICY) if each.most is not None]
    assert over == [(StorageKind.POINTS, 400), (StorageKind.LINES, 150)]


def test_what_has_gone_already_is_not_asked_for() -> None:
    assert order(StoredData("ended", StorageKind.POINTS, 0, ended=True)) == []


def test_below_the_limit_or_without_one_nothing_has_to_go() -> None:
    assert excess(1_000, POLICY) == 0
    assert excess(1_100, POLICY) == 120
    assert excess(10**15, replace(POLICY, bytes=0)) == 0


def test_the_history_says_what_went_and_why() -> None:
    assert loss(StorageKind.POINTS, 10, 1_234, "older than 30 days") == "raw points up to step 1,234 were removed: older than 30 days"
    assert loss(StorageKind.LINES, 1_500, None, "older than 30 days") == "1,500 log lines were removed: older than 30 days"
    assert loss(CURVES[1], 10, 999, "x") == "curves in steps of 100 up to step 999 were removed: x"
