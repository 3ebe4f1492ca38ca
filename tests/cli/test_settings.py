"""Precedence of sources, and what a key may be sent to."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from paceline.cli.errors import UsageProblem
from paceline.cli.settings import DEFAULT_SERVER, forget_other_coordinators, resolve, shell_variables, store, user_file, write_private


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


def test_a_pinned_authority_is_of_its_server_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(user_file(), "https://mine", "k", "PEM")
    assert resolve(start=tmp_path).authority.value == "PEM"
    assert resolve(server="https://other", start=tmp_path).authority.value is None
    (tmp_path / "ca.pem").write_text("OTHER")
    monkeypatch.setenv("PACELINE_CA_FILE", str(tmp_path / "ca.pem"))
    assert resolve(start=tmp_path).authority.value == "OTHER"
    monkeypatch.setenv("PACELINE_CA_FILE", str(tmp_path / "nowhere.pem"))
    with pytest.raises(UsageProblem, match=r"PACELINE_CA_FILE=.*nowhere"):
        resolve(start=tmp_path)


def test_damaged_file_is_named(tmp_path: Path) -> None:
    path = user_file()
    path.parent.mkdir(parents=True)
    path.touch(mode=0o600)
    path.write_text("{")
    with pytest.raises(UsageProblem, match=r"credentials\.json cannot be read"):
        resolve(start=tmp_path)


def project_of(folder: Path) -> Path:
    path = folder / ".paceline" / "credentials.json"
    store(path, "http://project", "stored")
    return path


def test_a_key_of_the_environment_is_not_sent_where_the_working_directory_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project_of(tmp_path)
    monkeypatch.setenv("PACELINE_API_KEY", "precious")
    found = resolve(start=tmp_path)
    assert (found.url, found.key) == ("http://project", "stored")
    assert "PACELINE_API_KEY is not sent to http://project" in found.warnings[0]
    monkeypatch.setenv("PACELINE_SERVER", "http://mine")
    assert (resolve(start=tmp_path).key, resolve(start=tmp_path).warnings) == ("precious", ())
    assert resolve("http://mine", start=tmp_path).key == "precious"


@pytest.mark.parametrize(
    ("place", "mode", "told"),
    [(".", 0o770, "chmod go-w"), (".", 0o707, "chmod go-w"), ("credentials.json", 0o644, "chmod 600")],
    ids=["a folder that the group may write to", "a folder that all may write to", "a file that all may read"],
)
def test_a_file_that_others_may_have_written_chooses_nothing(tmp_path: Path, place: str, mode: int, told: str) -> None:
    path = project_of(tmp_path)
    (path.parent / place).chmod(mode)
    found = resolve(start=tmp_path)
    assert (found.url, found.key) == (DEFAULT_SERVER, None)
    assert f"{path} is not used" in found.warnings[0]
    assert told in found.warnings[0]


def test_a_file_of_another_user_chooses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, own = project_of(tmp_path), os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    if own == 0:  # root's files are everybody's to trust
        os.chown(path, 12345, -1)
    found = resolve(start=tmp_path)
    assert found.url == DEFAULT_SERVER
    assert "belongs to user" in found.warnings[0]


def test_a_key_without_a_server_is_sent_nowhere(tmp_path: Path) -> None:
    path = project_of(tmp_path)
    write_private(path, {"api_key": "stray"})
    assert resolve(start=tmp_path).key is None


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageProblem, match="the working directory is gone"):
        resolve()


def test_a_private_coordinator_sees_nothing_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("PACELINE_SERVER", "PACELINE_MEMBERS_MAY", "DATABASE_URL", "REDIS_URL", "PACELINE_DASHBOARD", "MY_OWN")
    monkeypatch.setattr(os, "environ", dict.fromkeys(names, "x"))
    forget_other_coordinators()
    assert shell_variables() == {"PACELINE_DASHBOARD": "x", "MY_OWN": "x"}


def test_a_private_agent_may_delete_checkpoints_in_the_stores_that_its_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`paceline run` took the list away: what `keep_last` gave up stayed in the bucket for good, and a log asked for the list that had been set."""
    monkeypatch.setattr(os, "environ", {"PACELINE_STORE_ENDPOINTS": "https://minio:9000"})
    forget_other_coordinators()
    assert shell_variables() == {"PACELINE_STORE_ENDPOINTS": "https://minio:9000"}
