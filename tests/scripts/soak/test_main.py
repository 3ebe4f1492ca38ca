"""The stack that is soaked keeps as little as the soak means it to."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paceline.api.settings import Settings
from scripts.soak.__main__ import LIMITS


def test_its_limits_are_settings_that_a_coordinator_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is renamed would be ignored, and databases that grow would pass for the fault of their keeper."""
    for name, value in LIMITS.items():
        monkeypatch.setenv(name, value)
    keep = Settings().keep
    assert (keep.bytes, keep.recent) == (20_000_000, timedelta())
