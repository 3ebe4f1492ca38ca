"""Precedence of sources, and what a key may be sent to."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from cli.errors import UsageProblem
from cli.settings import DEFAULT_SERVER, resolve, store, user_file


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PACELINE_SERVER", "PACELINE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_flag_then_environment_then_project_then_user_then_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "project" / "deep"
    inside.mkdir(parents=True)

    def winner(flag: str | None = None) -> tuple[str, str]:
        found = resolve(server=flag, start=inside)
        return found.url, found.server.source.split()[0]

    assert winner() == (DEFAULT_SERVER, "default")
    store(user_file(), "http://user", "k")
    assert winner() == ("http://user", "user")
    store(tmp_path / "project" / ".paceline" / "credentials.json", "http://project", "k")
    assert winner() == ("http://project", "project")
    monkeypatch.setenv("PACELINE_SERVER", "http://environment")
    assert winner() == ("http://environment", "environment")
    assert winner("http://flag") == ("http://flag", "flag")


def test_key_of_one_server_is_not_sent_to_another(tmp_path: Path) -> None:
    store(user_file(), "http://mine", "secret")
    assert resolve(start=tmp_path).key == "secret"
    assert resolve(server="http://mine/", start=tmp_path).key == "secret"
    assert resolve(server="http://other", start=tmp_path).key is None


def test_credentials_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "credentials.json"
    store(path, "http://here/", "k")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {"server": "http://here", "api_key": "k"}


def test_damaged_file_is_named(tmp_path: Path) -> None:
    path = user_file()
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(UsageProblem, match=r"credentials\.json cannot be read"):
        resolve(start=tmp_path)
