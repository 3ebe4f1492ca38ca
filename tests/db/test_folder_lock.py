"""Two coordinators never share a data folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.db.errors import FolderInUseError
from paceline.db.folder_lock import folder_lock


async def test_a_second_coordinator_on_a_data_folder_is_refused_by_the_first_ones_pid(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, database_url=None, redis_url=None)
    first, second = create_app(settings), create_app(settings)
    async with first.router.lifespan_context(first):
        with pytest.raises(FolderInUseError, match=rf"process {os.getpid()}: stop that one"):
            async with second.router.lifespan_context(second):
                pass
    with folder_lock(tmp_path, patience=0.0):
        pass  # it ended with the first one
