"""`paceline backup` and `paceline db` over a data folder, as a user runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.conftest import Paceline


def test_a_backup_is_made_checked_and_put_back(stranger: Paceline, sqlite_template: Path, tmp_path: Path) -> None:
    shutil.copytree(sqlite_template, tmp_path / ".paceline")
    made = stranger("backup", "kept", "--json", DATABASE_URL="")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["folder"] == str(tmp_path / "kept")
    assert stranger("db", "check", "--backup", "kept", DATABASE_URL="").returncode == 0
    refused = stranger("db", "restore", "kept", DATABASE_URL="")
    assert (refused.returncode, refused.stdout) == (6, "")
    assert "--force moves them aside" in refused.stderr
    assert stranger("db", "restore", "kept", "--force", DATABASE_URL="").returncode == 0
    with open(tmp_path / ".paceline" / "metrics.db", "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    checked = stranger("db", "check", DATABASE_URL="")
    assert checked.returncode == 1
    assert "integrity:" in checked.stdout


def test_a_backup_is_one_of_the_folder_that_the_environment_names(stranger: Paceline, sqlite_template: Path, tmp_path: Path) -> None:
    shutil.copytree(sqlite_template, service := tmp_path / "service")
    made = stranger("backup", "kept", "--json", DATABASE_URL="", PACELINE_DATA=str(service))
    assert made.returncode == 0, made.stderr
    assert stranger("db", "check", DATABASE_URL="", PACELINE_DATA=str(service)).returncode == 0
    assert not (tmp_path / ".paceline").exists()


def test_postgresql_is_left_to_its_own_tools(stranger: Paceline) -> None:
    refused = stranger("backup", "kept", DATABASE_URL="postgresql://x/y")
    assert refused.returncode == 2
    assert "pg_dump --format=custom" in refused.stderr


def test_a_backup_is_no_checkpoint(paceline: Paceline, tmp_path: Path) -> None:
    (tmp_path / "backup.json").write_text("{}")
    refused = paceline("restore", str(tmp_path))
    assert refused.returncode == 2
    assert f"paceline db restore {tmp_path}" in refused.stderr
