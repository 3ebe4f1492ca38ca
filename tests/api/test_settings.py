"""Settings from the environment, as the parts of the coordinator get them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paceline.api.settings import Settings

DAYS = {"points": 2, "curves": 3, "lines": 5, "events": 7, "artifacts": 11, "ranks": 13}


def test_each_setting_of_what_is_kept_reaches_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, days in DAYS.items():
        monkeypatch.setenv(f"PACELINE_KEEP_{kind.upper()}_DAYS", str(days))
    for name, value in {"READINGS_HOURS": "17", "READINGS_DAYS": "20", "RECENT_HOURS": "19", "SIZE": "23MiB"}.items():
        monkeypatch.setenv(f"PACELINE_KEEP_{name}", value)
    keep = Settings().keep
    assert {kind: getattr(keep, kind) for kind in DAYS} == {kind: timedelta(days=days) for kind, days in DAYS.items()}
    assert (keep.readings.raw, keep.readings.fine, keep.readings.coarse) == (timedelta(hours=17), timedelta(days=2), timedelta(days=3))
    assert (keep.recent, keep.bytes) == (timedelta(hours=19), 23 << 20)
