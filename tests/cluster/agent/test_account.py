"""`--run-as`: ranks under an account of their own, who can read nothing of the agent's."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from paceline.cluster.agent.account import find_account
from paceline.cluster.agent.errors import RunAsError
from paceline.cluster.agent.upload.artifacts import ArtifactsFolder
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, script_job, training_job, world
from tests.cluster.agent.coordinator import Coordinator

USER = "nobody"
READER = "paceline.cluster.agent.curves.main"
LOOK = """
import os, sys
print("I am", os.getuid(), os.getgid(), os.environ["USER"], os.environ["HOME"])
data = sys.argv[1]
os.chdir(os.environ["PACELINE_RANK_FOLDER"])
for path in (data, data + "/jobs", data + "/credential.json", data + "/spawner.txt", "order.json", "../../../other/g1/rank0/output.log"):
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).read()
        print("readable", path)
    except PermissionError:
        pass
try:
    os.setuid(0)
    print("root again")
except PermissionError:
    pass
os.mkdir("artifacts")
os.symlink(data + "/credential.json", "artifacts/stolen")
open("artifacts/stolen.note", "w").write("{}")
os.rename("order.json", "mine")
os.symlink("/etc/shadow", "order.json")
open("made", "w").write("")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")


@pytest.fixture
def open_agent(agent: AgentProcess) -> Iterator[AgentProcess]:
    """With its data where everybody may enter: pytest's own folders are closed."""
    try:
        find_account(USER).require_entry(Path("/"))
    except RunAsError as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory(prefix="paceline-test-") as folder:
        Path(folder).chmod(0o711)
        agent.data = Path(folder) / "agent"
        yield agent
        assert agent.process is None or agent.process.poll() is not None


@needs_root
async def test_a_rank_of_another_user_trains_and_reads_nothing_of_the_agents(open_agent: AgentProcess, coordinator: Coordinator) -> None:
    agent, nobody = open_agent, pwd.getpwnam(USER)
    agent.start("--run-as", USER, "--checkpoints", str(agent.data / "checkpoints"))
    await coordinator.until(lambda c: c.hellos)
    script = agent.data.parent / "look.py"
    look = script_job(script, LOOK, str(agent.data))
    script.chmod(0o644)
    other = assignment("other", world("other", slot=1), spec=training_job(steps=3))
    await coordinator.desire(other, assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=look))
    await coordinator.until(lambda c: drained("job")(c) and drained("other")(c))
    assert coordinator.of("job").text == [
        f"I am {nobody.pw_uid} {nobody.pw_gid} {USER} {nobody.pw_dir}",
        "readable ../../../other/g1/rank0/output.log",  # of the same user: ranks are kept from the node, not from each other
    ]
    rank = coordinator.rank("other")
    assert rank is not None
    assert (rank.outcome, rank.step) == ("completed", 3)  # over a socket of the agent's
    assert len(coordinator.of("other").streams["metrics"]) == 3
    folder = agent.data / "jobs" / "job" / "g1" / "rank0"
    assert {(path.stat().st_uid, path.name) for path in (folder, folder / "made")} == {(nobody.pw_uid, "rank0"), (nobody.pw_uid, "made")}
    await agent.end()
    agent.start("--run-as", USER, "--checkpoints", str(agent.data / "checkpoints"))  # with the link where its order should be
    await coordinator.until(lambda c: len(c.hellos) == 2)
    await agent.end()


def write_package(folder: Path, at_start: str) -> None:
    """A package whose line of code every interpreter runs that has it, as it starts."""
    info = "tiny-1.dist-info"
    files = {
        "tiny.pth": f"import os; {at_start}\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / "tiny-1-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def users_can_run_base_python() -> bool:
    """Whether the interpreter of new virtual environments is where every user may run it: not in root's home."""
    try:
        subprocess.run([Path(sys.base_prefix) / "bin" / "python3", "-c", ""], user=USER, cwd="/", check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@needs_root
@pytest.mark.parametrize("packages", ["requirements", "python"])
async def test_code_that_a_jobs_interpreter_runs_at_its_start_is_never_roots(
    open_agent: AgentProcess, coordinator: Coordinator, packages: str
) -> None:
    if packages == "requirements" and not users_can_run_base_python():
        pytest.skip(f"{USER} cannot run the Python of {sys.base_prefix}")
    agent, nobody, public = open_agent, pwd.getpwnam(USER), open_agent.data.parent / "public"
    public.mkdir()
    public.chmod(0o777)
    users, python = public / "users", public / "python"
    users.touch()
    users.chmod(0o666)
    write_package(public, f"open({str(users)!r}, 'a').write(f'{{os.geteuid()}}\\n')")
    python.write_text(f'#!/bin/sh\nid -u >> {users}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    agent.environment |= {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(public), "UV_CACHE_DIR": str(public / "cache")}
    agent.start("--run-as", USER, "--checkpoints", str(agent.data / "checkpoints"))
    job = training_job(steps=3)
    job["environment"][packages] = ["tiny"] if packages == "requirements" else str(python)
    await coordinator.desire(assignment("job", spec=job))
    await coordinator.until(drained("job"))
    rank = coordinator.rank("job")
    assert rank is not None
    assert (rank.outcome, rank.step) == ("completed", 3), coordinator.of("job").text
    assert set(users.read_text().split()) == {str(nobody.pw_uid)}
    await agent.end()


CURVES = """
import os, pathlib, time
from paceline.monitoring.event_file import EventFileWriter
from paceline.monitoring.recorder import Measurement

file = EventFileWriter(pathlib.Path(os.environ["PACELINE_LOG_DIR"]))
for step in range(1, 4):
    file.write([Measurement(step, time.time(), {"train/loss": 1.0 / step})])
while not os.path.exists("go"):
    time.sleep(0.05)
"""


@needs_root
async def test_the_curves_of_another_users_script_are_read_by_that_user(open_agent: AgentProcess, coordinator: Coordinator) -> None:
    agent, nobody = open_agent, pwd.getpwnam(USER)
    agent.start("--run-as", USER)
    await coordinator.until(lambda c: c.hellos)
    script = agent.data.parent / "train.py"
    job = script_job(script, CURVES)
    script.chmod(0o644)
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=job))
    await coordinator.until(lambda c: len(c.of("job").streams["metrics"]) == 3)
    found = [process.info for process in psutil.process_iter(["cmdline", "ppid", "uids"])]  # asked one by one, others' may end meanwhile
    ours = [each for each in found if READER in (each["cmdline"] or ()) and agent.process is not None and each["ppid"] == agent.process.pid]
    assert [each["uids"].effective for each in ours] == [nobody.pw_uid]
    folder = agent.data / "jobs" / "job" / "g1" / "rank0"
    (folder.parents[1] / "work" / "go").touch()
    await coordinator.until(drained("job"))
    received = coordinator.of("job").streams
    assert [(record.step, round(float(record.values["loss"]), 2)) for record in received["metrics"]] == [(1, 1.0), (2, 0.5), (3, 0.33)]
    assert [event.kind for event in received["events"]] == ["curves_found"]
    assert (folder / "metrics.spool").stat().st_uid == nobody.pw_uid
    await agent.end()


@needs_root
async def test_what_another_users_script_prints_is_read_by_that_user(open_agent: AgentProcess, coordinator: Coordinator) -> None:
    agent = open_agent
    agent.start("--run-as", USER)
    await coordinator.until(lambda c: c.hellos)
    script = agent.data.parent / "train.py"
    job = script_job(script, "for step in range(4):\n    print('step', step, 'loss', 1.5)\n")
    script.chmod(0o644)
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=job))
    await coordinator.until(drained("job"))
    assert [record.step for record in coordinator.of("job").streams["metrics"]] == [0, 1, 2, 3]
    await agent.end()


@needs_root
async def test_a_rank_of_another_user_dies_with_its_spawner(open_agent: AgentProcess, coordinator: Coordinator) -> None:
    agent = open_agent
    agent.start("--run-as", USER)
    await coordinator.desire(assignment("job", spec=training_job()))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.pid and len(c.of("job").text) > 2)
    agent.spawner().kill()
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.signal == "SIGKILL")
    await agent.end()


@needs_root
async def test_a_data_folder_that_the_user_cannot_enter_is_refused(agent: AgentProcess, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    agent.start("--run-as", USER)
    assert await agent.exited() == 1
    assert f"--run-as {USER}: that user cannot enter" in agent.log


def test_a_link_among_a_ranks_files_is_not_sent(tmp_path: Path) -> None:
    """Root could read what it names."""
    secret, artifacts = tmp_path / "secret.json", tmp_path / "rank0" / "artifacts"
    secret.write_text("secret")
    artifacts.mkdir(parents=True)
    for path in (artifacts.parent, artifacts) if os.geteuid() == 0 else ():
        os.chown(path, pwd.getpwnam(USER).pw_uid, -1)
    (artifacts / "trace.json").symlink_to(secret)
    with ArtifactsFolder(artifacts) as folder:
        assert folder.read_chunk("trace.json", 0) == b""


@needs_root
def test_root_is_no_account_for_ranks() -> None:
    with pytest.raises(RunAsError, match="is root"):
        find_account("root")


def test_a_user_who_is_not_there_is_named() -> None:
    with pytest.raises(RunAsError, match="no such user"):
        find_account("nobody-of-that-name")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may start processes as another user")
def test_without_root_it_is_refused() -> None:
    with pytest.raises(RunAsError, match="needs root"):
        find_account(USER)
