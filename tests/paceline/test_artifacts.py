"""`paceline.log_artifact`: a copy with the job, whole or not there, and nothing outside a job."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import paceline
from paceline import artifacts
from paceline.distributed.env import ARTIFACTS_FOLDER


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setenv(ARTIFACTS_FOLDER, str(folder))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_is_copied_so_that_it_may_change_afterwards(kept: Path, tmp_path: Path) -> None:
    source = tmp_path / "model.pt"
    source.write_bytes(b"first")
    assert paceline.log_artifact(source) == kept / "model.pt"
    source.write_bytes(b"later")
    paceline.log_artifact(str(source), "epochs/2/model.pt")
    assert files(kept) == {"model.pt": b"first", "epochs/2/model.pt": b"later"}
    paceline.log_artifact(source)
    assert files(kept)["model.pt"] == b"later"


def test_a_folder_is_copied_with_all_but_links_and_pipes(kept: Path, tmp_path: Path) -> None:
    source = tmp_path / "run"
    (source / "deep").mkdir(parents=True)
    (source / "a").write_bytes(b"a")
    (source / "deep" / "b").write_bytes(b"b")
    (source / "secret").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    paceline.log_artifact(source)
    assert files(kept) == {"run/a": b"a", "run/deep/b": b"b"}
    (source / "a").write_bytes(b"again")
    paceline.log_artifact(source)
    assert files(kept) == {"run/a": b"again", "run/deep/b": b"b"}


@pytest.mark.parametrize("name", ["../x", "/etc/x", "", "a/../../x", "."])
def test_a_name_that_leads_out_of_the_folder_is_refused(kept: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(ValueError, match="must be a path within the job's artifacts"):
        paceline.log_artifact(tmp_path / "x", name)
    assert files(kept) == {}


def test_a_missing_file_is_named_and_a_failed_copy_leaves_nothing(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        paceline.log_artifact(tmp_path / "nowhere")
    (tmp_path / "x").write_bytes(b"x")

    def full(source: object, target: Path) -> None:
        target.write_bytes(b"hal")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        paceline.log_artifact(tmp_path / "x")
    assert list(kept.iterdir()) == []


def test_outside_a_job_nothing_is_kept_and_that_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(ARTIFACTS_FOLDER, raising=False)
    monkeypatch.setattr(artifacts, "_reported", False)
    (tmp_path / "x").write_bytes(b"x")
    assert [paceline.log_artifact(tmp_path / "x") for _ in range(2)] == [None, None]
    assert capfd.readouterr().err.count("keeps nothing outside a job") == 1
