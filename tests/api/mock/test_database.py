"""The database of MOCK_DB lives as long as its coordinator, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.api.mock import database
from paceline.api.settings import Settings
from paceline.db.folder_lock import LOCK, folder_lock


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(database, "parent_folder", lambda: tmp_path)
    return tmp_path


def test_it_is_private_and_gone_at_the_end_and_other_databases_are_left_alone(parent: Path) -> None:
    given = Settings(data=Path("/var/lib/paceline"), database_url="postgresql://db/paceline", redis_url="redis://r")
    with database.private_database(given) as settings:
        assert settings.data.parent == parent
        assert settings.data.stat().st_mode & 0o077 == 0
        assert (settings.database_url, settings.redis_url, settings.print_login_link) == (None, None, False)
        (settings.data / "paceline.db").touch()
    assert [*parent.iterdir()] == []


def test_the_rest_of_a_coordinator_that_was_killed_is_removed_by_the_next_one(parent: Path) -> None:
    dead, living, foreign = (parent / f"{database.PREFIX}{name}" for name in ("dead", "living", "foreign"))
    for folder in (dead, living, foreign):
        folder.mkdir()
    (dead / LOCK).touch()
    with folder_lock(living), database.private_database(Settings()) as settings:
        assert {*parent.iterdir()} == {living, foreign, settings.data}


def test_little_memory_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LEAST_FREE", 1 << 62)
    assert database.parent_folder() != database.MEMORY
