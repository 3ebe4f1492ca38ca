"""The environments of a machine: one for each version of Paceline that a node of it has, and none that no node has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.provisioners.ssh import on_host
from paceline.cluster.provisioners.ssh.program import node_program
from tests.waiting import wait_until

#: Stands for uv. The Python of an environment that it makes writes down whose agent it runs, and where it lies itself.
UV = """#!/bin/sh
[ "$1" = venv ] || exit 0
mkdir -p "$5/bin"
cat >"$5/bin/python" <<'PYTHON'
#!/bin/sh
echo "$0" >"{folder}/ran-$3"
exec sleep 300
PYTHON
chmod +x "$5/bin/python"
"""


class Machine:
    """A machine whose nodes are launched as coordinators of one version and another do it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.top = folder, folder / "there"
        self.versions = dict[str, str]()
        self.sent = list[str]()

    def launch(self, name: str, version: str) -> None:
        order: dict[str, Any] = {
            "folder": str(self.top),
            "name": name,
            "launch": "",
            "server": "http://127.0.0.1:1",
            "environment": "",
            "packages_of": "",
        }
        order |= {"python": sys.executable, "pip_options": [], "constraints": "", "key": version, "wheel": "paceline.whl", "token": "t"}
        order |= {"arguments": [name], "program": node_program()}
        needed = on_host.prepare(order)
        if needed["state"] == "wheel":
            self.sent.append(version)
            Path(needed["path"]).touch()
        assert on_host.start(order) == {"state": "started", "how": "setsid"}
        self.versions[name] = version

    def runs(self, name: str) -> str:
        """The environment in whose Python a node's agent runs."""
        said = self.folder / f"ran-{name}"
        wait_until(lambda: said.exists() and said.read_text().endswith("\n"), f"the agent of {name}", seconds=30.0)
        version = Path(said.read_text().strip()).parents[1].name
        said.unlink()
        return version

    def end(self, name: str) -> None:
        on_host.stop(self.top / "nodes" / name, name)
        on_host.clean(self.top, self.versions.pop(name))

    def kept(self) -> set[str]:
        environments, wheels = ({each.name for each in (self.top / kind).iterdir()} for kind in ("environments", "wheels"))
        assert environments == wheels
        return environments


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "uv").write_text(UV.format(folder=tmp_path))
    (programs / "uv").chmod(0o755)
    started, popen = list[subprocess.Popen[bytes]](), subprocess.Popen

    def start(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*words, **options))
        return started[-1]

    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(on_host, "start_by_systemd", lambda order, command: False)
    monkeypatch.setattr(subprocess, "Popen", start)
    yield Machine(tmp_path)
    for each in started:
        each.kill()
        each.wait(10.0)


def test_a_node_that_is_launched_anew_has_the_new_version_and_the_one_before_goes_with_its_last_node(machine: Machine) -> None:
    machine.launch("a", "old")
    machine.launch("b", "old")
    assert (machine.runs("a"), machine.runs("b")) == ("old", "old")
    machine.end("a")
    machine.launch("a", "new")
    assert machine.runs("a") == "new"
    assert machine.kept() == {"old", "new"}
    machine.end("b")
    assert machine.kept() == {"old", "new"}, "the next node may be of a coordinator that was set back"
    machine.end("a")
    assert machine.kept() == {"new"}
    machine.launch("b", "new")
    assert machine.runs("b") == "new"
    assert machine.sent.count("new") == 1, "what is there is used again"
