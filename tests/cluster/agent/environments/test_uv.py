"""Whatever a job starts has the job's packages: its programs come first on PATH, and those of the node run with its Python. By a real uv and agent."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.agent.environments.uv import lines_behind
from paceline.cluster.provisioners.ssh.host_environments import borrow_packages
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, world
from tests.cluster.agent.coordinator import Coordinator

PROGRAM = """
import sys, tinytool, torch
print("of", tinytool.NAME, "by", sys.prefix, "with", torch.__file__, flush=True)
"""


def write_wheel(folder: Path) -> None:
    """A package with one module and two programs, one of which the node has too."""
    info = "tinytool-1.dist-info"
    files = {
        "tinytool.py": "import sys\nNAME = 'tinytool'\ndef main():\n    print('says', NAME, 'by', sys.prefix)\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinytool\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntinytool = tinytool:main\nalembic = tinytool:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in files)
    folder.mkdir()
    with zipfile.ZipFile(folder / "tinytool-1-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.fixture
def agent(agent: AgentProcess, tmp_path: Path) -> AgentProcess:
    """An agent that finds one package in a folder, and whose PATH has neither its own interpreter nor any other."""
    write_wheel(tmp_path / "wheels")
    agent.environment |= {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path / "wheels"), "PATH": "/usr/bin:/bin"}
    return agent


async def output_of(agent: AgentProcess, coordinator: Coordinator, *command: str) -> str:
    """What a job with that package and this command prints, without the lines of its build."""
    spec: dict[str, Any] = {"name": "job", "script": {"command": list(command)}, "environment": {"requirements": ["tinytool"]}}
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=spec))
    await coordinator.until(drained("job"))
    assert await agent.end() == 0
    lines = coordinator.of("job").text
    assert coordinator.rank("job").exit_code == 0, lines  # type: ignore[union-attr]
    return "\n".join(line for line in lines if not line.startswith("environment: "))


async def test_torchrun_runs_with_the_packages_of_the_job_and_the_torch_of_the_node(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    import torch

    (tmp_path / "train.py").write_text(PROGRAM)
    said = await output_of(agent, coordinator, "torchrun", "--standalone", "--nproc-per-node", "1", str(tmp_path / "train.py"))
    (venv,) = (agent.data / "environments").glob("*/venv")
    assert f"of tinytool by {venv} with {torch.__file__}" in said


async def test_a_shell_finds_the_programs_of_the_job_before_those_of_the_node(agent: AgentProcess, coordinator: Coordinator) -> None:
    said = await output_of(agent, coordinator, "sh", "-c", "tinytool; alembic; for each in python accelerate uv; do command -v $each; done")
    (venv,) = (agent.data / "environments").glob("*/venv")
    node = Path(sys.executable).parent
    assert said.splitlines() == [f"says tinytool by {venv}"] * 2 + [f"{venv}/bin/python", f"{venv}/bin/accelerate", f"{node}/uv"]


def test_an_agent_that_borrows_the_packages_of_another_environment_has_its_uv(tmp_path: Path) -> None:
    """As `packages_of` of a pool makes it: pip takes the borrowed uv for installed, and puts no program beside the agent's Python."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    borrow_packages(str(python), sys.executable)
    code = "from paceline.cluster.agent.environments.uv import find_uv; print(find_uv())"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[4])
    assert found.stdout.strip() == str(Path(sys.executable).parent / "uv"), found.stderr


def test_the_lines_behind_a_failure_are_those_whose_packages_uv_names() -> None:
    asked = ["--pre", "Flash_Attn[x]>=2", "numpy<2", "num", "tiny @ https://host/tiny.zip", "pandas"]
    said = "Because flash-attn==2 depends on numpy>=2 and tiny, pandas-stubs cannot be used."
    assert lines_behind(said, asked) == ["Flash_Attn[x]>=2", "numpy<2", "tiny @ https://host/tiny.zip"]
    assert lines_behind("uv pip ended with code 2", asked) == []
