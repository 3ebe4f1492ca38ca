"""Steps show what failed; stamps notice every change."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import steps
from scripts.steps import Stamp, StepError, run


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(steps, "ROOT", tmp_path)
    monkeypatch.setattr(steps, "CACHE", tmp_path / ".cache")
    return tmp_path


def test_failed_step_shows_its_output_and_where_the_rest_is(elsewhere: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StepError, match=r"building a thing: exit 3; .*building-a-thing\.log"):
        run("building a thing", [sys.executable, "-c", "print('why it failed'); raise SystemExit(3)"], cwd=elsewhere)
    assert "why it failed" in capfd.readouterr().out


def test_long_step_shows_its_newest_line(elsewhere: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PROGRESS_INTERVAL_S", 0.0)
    run("building", [sys.executable, "-c", "print('part 1', flush=True); print('part 2')"], cwd=elsewhere)
    assert "part 1" in capfd.readouterr().out


def test_stamp_is_fresh_until_content_name_or_output_changes(elsewhere: Path) -> None:
    source, output = elsewhere / "source", elsewhere / "output"
    source.mkdir()
    (source / "a").write_text("1")

    def stamp() -> Stamp:
        return Stamp("it", [source], extra="v20")

    assert not stamp().fresh()
    stamp().set()
    assert stamp().fresh()
    assert not stamp().fresh(output)
    assert not Stamp("it", [source], extra="v22").fresh()
    (source / "a").write_text("2")
    assert not stamp().fresh()
    stamp().set()
    (source / "a").rename(source / "b")
    assert not stamp().fresh()
