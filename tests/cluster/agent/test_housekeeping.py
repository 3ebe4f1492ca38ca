from __future__ import annotations

import os
import time
from pathlib import Path

from cluster.agent.housekeeping import KEEP_OUTPUT_SECONDS, retire, sweep
from training.link import RankFolder

NOW = time.time()


def make(jobs: Path, generation: int, age: float = 0.0, *, retired: bool = True) -> Path:
    folder = RankFolder(jobs.parent, "job", generation, 0)
    folder.path.mkdir(parents=True)
    for path in (folder.order, folder.metrics, folder.output, folder.exit_status):
        path.write_text("x")
    if retired:
        retire(folder)
    os.utime(folder.path, (NOW - age, NOW - age))
    return folder.path.parent


def test_the_last_generations_output_stays_for_a_day(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    first, second = make(jobs, 9), make(jobs, 10)
    sweep(jobs, NOW)
    assert not first.exists()
    assert sorted(path.name for path in (second / "rank0").iterdir()) == ["exit.json", "output.log"]
    sweep(jobs, NOW + KEEP_OUTPUT_SECONDS + 10)
    assert list(jobs.iterdir()) == []


def test_files_that_are_not_uploaded_yet_keep_their_generation_for_a_day(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    first, _ = make(jobs, 1), make(jobs, 2)
    traces = RankFolder(tmp_path, "job", 1, 0).artifacts
    traces.mkdir()
    (traces / "trace.json.gz.note").write_text("{}")
    os.utime(traces.parent, (NOW, NOW))
    sweep(jobs, NOW)
    assert (traces / "trace.json.gz.note").exists()
    sweep(jobs, NOW + KEEP_OUTPUT_SECONDS + 10)
    assert not first.exists()


def test_what_is_not_retired_is_never_touched(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    kept, newer = make(jobs, 1, age=10 * KEEP_OUTPUT_SECONDS, retired=False), make(jobs, 2)
    sweep(jobs, NOW)
    assert (kept / "rank0" / "metrics.spool").exists()
    assert newer.exists()
