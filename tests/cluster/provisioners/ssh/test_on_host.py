"""The file with an agent's variables on its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cluster.provisioners.ssh.on_host import read_variables


def file(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    path = tmp_path / "agent.env"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_variables_are_read_line_by_line(tmp_path: Path) -> None:
    text = "# of the bucket\n\nAWS_ACCESS_KEY_ID=me\nAWS_SECRET_ACCESS_KEY='a=b \"c\"'\nEMPTY=\n"
    found = read_variables(file(tmp_path, text))
    assert found == {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": 'a=b "c"', "EMPTY": ""}


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "A=1", 0o640)
    with pytest.raises(RuntimeError, match=f"chmod 600 {path}"):
        read_variables(path)


@pytest.mark.parametrize("text", ["export A=1", "A", "A B=1", "1A=2"])
def test_a_line_that_is_no_variable_is_refused_without_its_value(tmp_path: Path, text: str) -> None:
    with pytest.raises(RuntimeError, match=r"line 2 is not NAME=VALUE$"):
        read_variables(file(tmp_path, f"B=1\n{text}\n"))
