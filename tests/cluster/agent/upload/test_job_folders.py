"""A node that had run a thousand trials looked through their folders each second, which took 3 % of a core for a day."""

from __future__ import annotations

from pathlib import Path

from paceline.cluster.agent.upload.job_folders import ALL_SECONDS, JobFolders


def test_folders_of_ended_jobs_are_looked_at_now_and_then(tmp_path: Path) -> None:
    for name in ("ended", "running", "unsent"):
        (tmp_path / name).mkdir()
    folders = JobFolders(tmp_path, lambda: {"running"})
    everything, busy = [tmp_path / name for name in ("ended", "running", "unsent")], [tmp_path / name for name in ("running", "unsent")]
    assert folders.due((), 100.0) == everything  # an agent before this one may have left something
    assert folders.due({"unsent"}, 101.0) == busy
    assert folders.due({"unsent"}, 99.0 + ALL_SECONDS) == busy
    assert folders.due({"unsent"}, 100.0 + ALL_SECONDS) == everything
    assert folders.due((), 101.0 + ALL_SECONDS) == [tmp_path / "running"]


def test_a_node_without_any_folder_has_nothing_to_look_at(tmp_path: Path) -> None:
    assert JobFolders(tmp_path / "jobs", set).due((), 0.0) == []
