"""Settings from the environment, as the parts of the coordinator get them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

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


@pytest.mark.parametrize("name", ["PACELINE_KEEP_SIZE", "PACELINE_DISK_LOW"])
@pytest.mark.parametrize("text", ["1,000GiB", "2,5GiB", "10 %", "10%", "20GiB or so", "20 GiBs!", "-1GiB"])
def test_a_size_that_is_not_understood_as_a_whole_is_refused(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`1,000GiB` was 1 byte, so all that was recorded was deleted, and `10 %` were 10 bytes, so the disk filled."""
    monkeypatch.setenv(name, text)
    with pytest.raises(ValidationError, match=f"{name}={text} must be a number of bytes, with or without a unit, such as 20GiB"):
        Settings()


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1048576", 1 << 20), ("20GiB", 20 << 30), ("2.5 GiB", 5 << 29), (" 20 gib ", 20 << 30), ("20MB", 20_000_000)],
)
def test_a_size_is_a_number_with_a_unit(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_KEEP_SIZE", text)
    monkeypatch.setenv("PACELINE_DISK_LOW", text)
    assert (Settings().keep_size, Settings().disk_low) == (size, size)


VARIABLES = sorted(str(field.validation_alias or f"PACELINE_{name.upper()}") for name, field in Settings.model_fields.items())


@pytest.mark.parametrize("name", VARIABLES)
def test_an_empty_variable_is_one_that_is_not_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`PACELINE_TLS_CA=` was the folder `.`, with which no coordinator starts."""
    monkeypatch.delenv(name, raising=False)
    left_out = Settings()
    monkeypatch.setenv(name, "")
    assert Settings() == left_out
