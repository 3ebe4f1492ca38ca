"""Requirements files are read where the command is typed: the job has their lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.cli.errors import UsageProblem
from paceline.cli.requirement_files import with_requirements


def lines(spec: dict[str, Any], file: Path) -> object:
    return with_requirements(spec, str(file))["environment"].get("requirements")


def test_a_file_beside_the_spec_is_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("# mine\nTiktoken >= 0.9\n-r more/other.txt\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.txt").write_text("numpy\n")
    for given in ("requirements.txt", ["-r requirements.txt"], ["--requirement=requirements.txt"]):
        assert lines({"environment": {"requirements": given}}, tmp_path / "job.yaml") == ["tiktoken>=0.9", "numpy"]


def test_the_working_directory_comes_first(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "r.txt").write_text("a\n")
    (tmp_path / "r.txt").write_text("b\n")
    given = {"environment": {"requirements": "r.txt", "working_directory": str(tmp_path / "code")}}
    assert lines(given, tmp_path / "job.yaml") == ["a"]


@pytest.mark.parametrize("environment", [None, {}, {"requirements": ["a"]}, {"requirements": 5}, {"requirements": [5]}, "text"], ids=str)
def test_what_names_no_file_is_left_as_it_is(environment: object, tmp_path: Path) -> None:
    spec = {"environment": environment}
    assert with_requirements(spec, str(tmp_path / "job.yaml")) == spec


def test_a_file_of_code_that_was_sent_is_the_coordinators_to_read(tmp_path: Path) -> None:
    spec = {"environment": {"requirements": "none.txt", "code": {"bundle": "b"}}}
    assert with_requirements(spec, str(tmp_path / "job.yaml")) == spec


def test_a_file_that_is_not_there_or_has_a_bad_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"none\.txt cannot be read"):
        lines({"environment": {"requirements": "none.txt"}}, tmp_path / "job.yaml")
    (tmp_path / "bad.txt").write_text("a\n-e .\n")
    with pytest.raises(UsageProblem, match=r"bad\.txt line 2: -e \. is a folder"):
        lines({"environment": {"requirements": "bad.txt"}}, tmp_path / "job.yaml")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageProblem, match="no text in UTF-8"):
        lines({"environment": {"requirements": "bytes.txt"}}, tmp_path / "job.yaml")
