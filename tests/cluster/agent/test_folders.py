from __future__ import annotations

import socket
from pathlib import Path

from paceline.cluster.agent.folders import AgentFolder


def test_sockets_lie_in_the_data_folder_where_they_fit(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path)
    assert folder.agent_socket.parent == tmp_path


def test_a_long_path_gets_a_short_folder_that_is_remembered(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path / ("x" * 120))
    folder.create()
    short = folder.spawner_socket.parent
    try:
        assert AgentFolder(folder.path).agent_socket.parent == short
        assert short.stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder.spawner_socket))
        folder.spawner_socket.unlink()
    finally:
        short.rmdir()


def test_a_short_folder_that_was_cleaned_away_is_made_anew(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path / ("x" * 120))
    folder.create()
    folder.spawner_socket.parent.rmdir()
    again = folder.spawner_socket.parent
    assert again.is_dir()
    again.rmdir()
