"""Where a folder's code comes from, as git tells it: on real repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paceline.cli import git_facts as git_module
from paceline.cli.git_facts import GitFacts, git_facts
from paceline.cli.job_facts import code_origin
from paceline.training.schema import code as schema
from tests.paceline.bundles.test_listing import make


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=ada", "-c", "user.email=ada@example.org", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_commit_branch_and_what_differs(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    assert git_facts(tmp_path) == GitFacts(None, "main", ())
    make(tmp_path, **{"train.py": "1", "old name.py": "22222222222222222222", "pkg/a.py": "3", ".gitignore": "*.log\n"})
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_facts(tmp_path) == GitFacts(commit, "main", ())
    make(tmp_path, **{"train.py": "2", "pkg/ünew\n.py": "4", "x.log": "5"})
    git(tmp_path, "mv", "old name.py", "new name.py")
    assert git_facts(tmp_path) == GitFacts(commit, "main", ("new name.py", "train.py", "pkg/ünew\n.py"))
    assert git_facts(tmp_path / "pkg") == GitFacts(commit, "main", ("pkg/ünew\n.py",))
    git(tmp_path, "checkout", "-q", "--detach")
    found = git_facts(tmp_path)
    assert found is not None
    assert (found.commit, found.branch) == (commit, None)


def test_the_first_hundred_files_stand_for_more(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    make(tmp_path, **{f"{number:03}.py": "" for number in range(120)})
    found = git_facts(tmp_path)
    assert found is not None
    assert (len(found.uncommitted), found.uncommitted[-1]) == (100, "099.py")
    (line,) = [
        value
        for name, value in code_origin({"bundle": "0" * 64, "commit": "1" * 40, "uncommitted": list(found.uncommitted)})
        if name == "commit"
    ]
    assert "and 100 files or more that differed: 000.py" in line


def test_a_file_whose_name_is_too_long_for_a_spec_is_told_by_its_beginning(tmp_path: Path) -> None:
    """It was left out without a word, so that changed code looked like that of the commit."""
    git(tmp_path, "init", "-q")
    make(tmp_path, **{f"{'d' * 200}/{'e' * 200}/{'f' * 20}.py": ""})
    found = git_facts(tmp_path)
    assert found is not None
    assert [(len(name), name[:200], name[-3:]) for name in found.uncommitted] == [(300, "d" * 200, "...")]


def test_no_repository_and_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_facts(tmp_path) is None
    assert git_facts(tmp_path / "missing") is None
    git(tmp_path, "init", "-q")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_facts(tmp_path) is None


def test_as_much_is_told_as_a_job_spec_takes() -> None:
    """The command line does not import the schema, which takes pydantic, for two numbers."""
    assert (git_module.MOST_CHANGED, git_module.MOST_PATH) == (schema.MOST_CHANGED, schema.MOST_PATH)
