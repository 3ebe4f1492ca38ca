"""A folder with a `paceline` of its own is told of, in words for an entrypoint and in others for a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.training.spec.clashes import importable, why_ours_wins, why_yours_wins


@pytest.mark.parametrize("file", ["paceline.py", "paceline/__init__.py"])
def test_a_module_of_our_name_is_told_of(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    found = f"{tmp_path / file} has Paceline's name"
    assert why_ours_wins(str(tmp_path)) == f"{found}: an entrypoint imports Paceline's; rename it, or run it as a script"
    assert why_yours_wins(str(tmp_path)) == f"{found}: the script imports yours; rename it if the script is to import Paceline's"


def test_nothing_is_said_of_other_folders_and_of_none(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text("")
    (tmp_path / "paceline").mkdir()  # such as a checkout: without an __init__.py the installed package is found
    assert why_yours_wins(str(tmp_path)) is None
    assert why_ours_wins(str(tmp_path)) is None
    assert why_ours_wins(None) is None
    assert importable(tmp_path) == {"training"}
    assert importable(tmp_path / "not-there") == set()
