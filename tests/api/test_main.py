"""Starting a coordinator: what it has loaded costs no request anything, and its log does not grow for ever."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

from paceline.api.main import create_app, leave_loaded_uncollected
from paceline.api.settings import Settings
from paceline.monitoring.log_file import MAX_BYTES
from tests.waiting import until


async def test_what_a_started_coordinator_has_loaded_is_left_out_of_the_garbage_collectors_rounds(settings: Settings) -> None:
    """A round through all of it holds every request up for a quarter of a second, and a large document is enough to set one off."""
    leave_loaded_uncollected.cache_clear()
    gc.unfreeze()
    try:
        counts = [await frozen_once_started(settings) for _ in range(2)]
        assert counts[0] > 100_000
        assert counts[1] <= counts[0], "what further apps of one process leave behind is to be collected"
    finally:
        gc.freeze()


async def frozen_once_started(settings: Settings) -> int:
    app = create_app(settings, with_loops=False)
    async with app.router.lifespan_context(app):
        return gc.get_freeze_count()


def test_the_garbage_collector_looks_rarely_from_the_first_import_on() -> None:
    thresholds = subprocess.check_output([sys.executable, "-c", "import gc, paceline.api; print(gc.get_threshold())"], text=True)
    assert thresholds == "(10000, 10, 20)\n"


async def test_the_log_of_a_running_coordinator_is_cut(settings: Settings, tmp_path: Path) -> None:
    log = tmp_path / "coordinator.log"
    log.touch()
    os.truncate(log, MAX_BYTES + 1)
    app = create_app(settings.model_copy(update={"log_file": log}), with_loops=False)
    async with app.router.lifespan_context(app):
        await until(lambda: log.stat().st_size < MAX_BYTES, "the cut of its log")
    assert Path(f"{log}.1").exists()
