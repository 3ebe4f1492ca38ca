"""A script's rank as a container of the node's engine: a stand-in for docker that runs its command shows what it gets."""

from __future__ import annotations

import itertools
import os
import pwd
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.containers.engines import Docker
from paceline.cluster.agent.containers.node_engines import NodeEngines, NoEngineError, working_engines
from paceline.cluster.agent.spawner_link import Spawn
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import world


def spawn(data: Path, **environment: object) -> Spawn:
    spec = {"name": "job", "script": {"path": "train.py"}, "environment": environment}
    folder = RankFolder(data, "JOB", 1, 0)
    order = RankOrder(spec=StoredSpec(spec), world=world("JOB", 0), folder=str(folder.path), agent_socket=str(data / "agent.sock"))
    variables = {"RANK": "0", "PATH": "/of/the/node", "SECRET": "value"}
    return Spawn(order=order, environment=variables, program=("python", "-u", "train.py"), working_directory=str(folder.work))


def test_a_job_without_an_image_is_left_as_it_is(tmp_path: Path) -> None:
    given = spawn(tmp_path)
    assert NodeEngines((Docker(),), None, {}).contained(given) is given


def test_names_of_variables_stand_in_the_command_and_no_values(tmp_path: Path) -> None:
    contained = NodeEngines((Docker(),), None, {}).contained(spawn(tmp_path, image="x", mounts=["/data:ro"]))
    words = contained.program
    assert (contained.fresh, contained.container) == (True, True)
    assert "RANK" in words
    assert "SECRET" in words
    assert "PATH" not in words
    assert "value" not in " ".join(words)
    volumes = [after for word, after in itertools.pairwise(words) if word == "--volume"]
    assert volumes == [f"{tmp_path}/jobs/JOB:{tmp_path}/jobs/JOB", f"{tmp_path}/agent.sock:{tmp_path}/agent.sock", "/data:/data:ro"]
    assert "--name=paceline-job-g1-r0" in words


def test_a_job_that_sets_its_path_has_it(tmp_path: Path) -> None:
    given = spawn(tmp_path, image="x", variables={"PATH": "/of/the/node"})
    assert "PATH" in NodeEngines((Docker(),), None, {}).contained(given).program


def test_a_node_that_has_lost_its_engine_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoEngineError, match="neither podman nor docker nor apptainer works on this node any more"):
        NodeEngines((), None, {}).contained(spawn(tmp_path, image="x"))


def test_an_engine_that_does_not_answer_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One second is for the engine that sleeps; the others have the time that they take."""
    for name, answer in (("docker", "exit 1"), ("podman", "exit 0"), ("apptainer", "exec sleep 60")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)
    run = subprocess.run

    def with_patience(command: tuple[str, ...], *, timeout: float, **options: Any) -> subprocess.CompletedProcess[str]:
        return run(command, timeout=1.0 if command[0] == "apptainer" else None, **options)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(subprocess, "run", with_patience)
    assert [engine.name for engine in working_engines(None, {})] == ["podman"]


#: What an engine has been asked, and by whom. Only root may use docker here.
ENGINE = """#!/bin/sh
echo "$1 $(id -u) $HOME $DOCKER_HOST" >>{folder}/said
[ "${{0##*/}}" = podman ] || [ "$(id -u)" = 0 ]
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
async def test_with_run_as_the_engine_is_that_of_the_ranks_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A docker that only root may use was offered, the job's folder could not be written to by podman, and the container of a killed rank was looked
    for among those of root, and stayed with its GPU."""
    nobody = pwd.getpwnam("nobody")
    account = Account(nobody.pw_name, nobody.pw_uid, nobody.pw_gid, nobody.pw_dir, nobody.pw_shell)
    with tempfile.TemporaryDirectory(prefix="paceline-test-") as name:  # pytest's own folders are closed to that user
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "said").touch()
        (folder / "said").chmod(0o666)
        for engine in ("docker", "podman"):
            (folder / engine).write_text(ENGINE.format(folder=folder))
            (folder / engine).chmod(0o755)
        variables = {"PATH": f"{folder}:/usr/bin:/bin"}
        monkeypatch.setenv("PATH", variables["PATH"])
        monkeypatch.setenv("DOCKER_HOST", "of-the-agent")
        found = working_engines(account, variables)
        assert [engine.name for engine in found] == ["podman"]
        engines = NodeEngines(found, account, variables)
        order = spawn(folder, image="x").order
        assert {"--userns=keep-id", f"--user={nobody.pw_uid}:{nobody.pw_gid}"} < set(engines.contained(spawn(folder, image="x")).program)
        engines.end(order)
        await engines.close()
        said = [line.split() for line in (folder / "said").read_text().splitlines()]
    assert [line[0] for line in said] == ["info", "info", "rm"]
    assert {tuple(line[1:]) for line in said} == {(str(nobody.pw_uid), nobody.pw_dir)}


async def test_a_container_is_removed_once_its_rank_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    engines = NodeEngines((Docker(),), None, {})
    engines.end(spawn(tmp_path).order)  # without an image: nothing is run
    engines.end(spawn(tmp_path, image="x").order)
    await engines.close()
    assert (tmp_path / "said").read_text() == "rm --force --volumes paceline-job-g1-r0\n"
