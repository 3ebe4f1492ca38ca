"""Ranks with packages of their own, by a real agent: a spawner for each environment, which outlives the agent as the default one does.

The environments here install nothing, so that no package index is needed.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.environments import preparation
from paceline.cluster.agent.environments.built import BuiltEnvironments
from paceline.cluster.agent.environments.own_python import InterpreterFacts
from paceline.cluster.agent.environments.preparation import JobEnvironments, PackagesRefusedError, variables_for_builds
from paceline.cluster.agent.errors import ProcessListNotAppliedError
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.main import LEFT_RANKS
from paceline.cluster.agent.spawner_fleet import NO_RANKS, SpawnerFleet
from paceline.cluster.agent.spawner_link import ProcessList
from paceline.cluster.agent.supervisor import SpawnerOptions, Supervisor
from paceline.cluster.protocol import JobSecrets, RankKey
from paceline.cluster.states import RankState
from paceline.monitoring.lines import encode_line
from paceline.training.link import RankOrder
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, running, training_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.waiting import until

TIMEOUT_SECONDS = 40.0


def with_packages(packages: dict[str, Any], **behaviour: Any) -> dict[str, Any]:
    spec = training_job(**behaviour)
    return {**spec, "environment": {**spec["environment"], **packages}}


def spawners(agent: AgentProcess) -> set[int]:
    """The spawners of environments."""
    return {each.pid for each in agent.leaders("--environment")}


def fleet_in(data: Path, told: list[str]) -> SpawnerFleet:
    """The spawners of a node without its agent. `told`: gets the name of each one that sends a process list."""
    folder = AgentFolder(data)
    folder.create()
    return SpawnerFleet(folder, SpawnerOptions("node", "", 1.0), CardLocks(data), lambda name, *_: told.append(name), Isolation())


async def test_the_second_job_finds_its_packages_and_their_spawner(agent: AgentProcess, coordinator: Coordinator) -> None:
    spec = with_packages({"requirements": []}, steps=3, tell="VIRTUAL_ENV")
    agent.start()
    await coordinator.desire(assignment("first", spec=spec))
    await coordinator.until(drained("first"))
    before = spawners(agent)
    await coordinator.desire(assignment("second", spec=spec))
    await coordinator.until(drained("second"))
    assert len(before) == 1
    assert spawners(agent) == before
    first, second = coordinator.of("first").text, coordinator.of("second").text
    assert "environment: installed 0 packages" in " ".join(first)
    assert not [line for line in second if line.startswith("environment:")]
    (venv,) = (agent.data / "environments").glob("*/venv")
    assert str(venv) in " ".join(second)
    assert await agent.end() == 0


async def test_a_killed_agents_successor_adopts_the_ranks_of_an_environment(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=with_packages({"requirements": []}, steps=0)))
    await coordinator.until(running("job"))
    pid, before = coordinator.rank("job").pid, spawners(agent)  # type: ignore[union-attr]
    await agent.end(signal.SIGKILL)
    agent.start()
    await coordinator.until(lambda c: len(c.hellos) == 2 and running("job")(c))
    assert (coordinator.rank("job").pid, spawners(agent)) == (pid, before)  # type: ignore[union-attr]
    assert await agent.end() == 0
    assert not spawners(agent)


async def test_an_upgrade_of_the_agent_leaves_the_ranks_of_an_environment_alone(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=with_packages({"requirements": []}, steps=0)))
    await coordinator.until(running("job"))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    assert await agent.end(signal.SIGHUP) == LEFT_RANKS
    coordinator.observed = None
    agent.start()
    await coordinator.until(lambda c: c.rank("job"))
    rank = coordinator.rank("job")
    assert (rank.state, rank.pid) == (RankState.RUNNING, pid)  # type: ignore[union-attr]
    assert await agent.end() == 0


async def test_a_rank_whose_end_cannot_be_read_does_not_end_the_ranks_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spawner is asked for its list again, as the default one is, and lives."""
    runs: list[str] = []
    told: list[str] = []

    async def run(supervisor: Supervisor) -> None:
        runs.append("run")
        if len(runs) == 1:
            raise ProcessListNotAppliedError("1 rank's end cannot be read")
        await asyncio.Event().wait()

    monkeypatch.setattr(Supervisor, "run", run)
    fleet = fleet_in(tmp_path, told)
    fleet.adopt(["packages"])
    await until(lambda: len(runs) == 2, "the second connection")
    await fleet.close()
    assert not told


async def test_a_spawner_that_is_killed_takes_its_ranks_along_and_the_next_job_gets_another(
    agent: AgentProcess, coordinator: Coordinator
) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=with_packages({"requirements": []}, steps=0)))
    await coordinator.until(running("job"))
    (before,) = spawners(agent)
    psutil.Process(before).kill()
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.EXITED)
    assert coordinator.rank("job").signal == "SIGKILL"  # type: ignore[union-attr]
    await coordinator.desire(assignment("next", spec=with_packages({"requirements": []}, steps=3)))
    await coordinator.until(drained("next"))
    assert coordinator.rank("next").outcome == "completed"  # type: ignore[union-attr]
    assert before not in spawners(agent)
    await agent.end()


async def test_a_rank_whose_spawner_ends_before_it_has_its_order_is_told_to_have_failed(
    agent: AgentProcess, coordinator: Coordinator
) -> None:
    """Its spawner is warm, and killed while the agent still asks for the job's secrets."""
    coordinator.secrets["job"] = JobSecrets(values={"TOKEN": "s3cret-value"})
    coordinator.gives_secrets.clear()
    agent.start()
    await coordinator.desire(assignment("job", spec=with_packages({"requirements": [], "secrets": ["TOKEN"]}, steps=0)))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await coordinator.asked_for_secrets.wait()
    (pid,) = spawners(agent)
    psutil.Process(pid).kill()
    await until(lambda: not spawners(agent), "the end of the spawner", seconds=TIMEOUT_SECONDS)
    coordinator.gives_secrets.set()
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.EXITED)
    assert "the process that has its packages ended" in coordinator.rank("job").failure.message  # type: ignore[union-attr]
    await agent.end()


async def test_a_job_that_comes_while_its_idle_spawner_ends_gets_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Supervisor] = []
    may_end = asyncio.Event()

    async def run(supervisor: Supervisor) -> None:
        begun.append(supervisor)
        supervisor._on_process_list(NO_RANKS, True)
        await supervisor._ending.wait()
        await may_end.wait()
        supervisor._ended.set()

    monkeypatch.setattr(Supervisor, "run", run)
    fleet = fleet_in(tmp_path, [])
    await fleet.ensure("packages", (), {})
    ending = asyncio.create_task(fleet.end_unused_since(math.inf))
    await until(lambda: fleet.has_ended("packages"), "the end of the idle spawner")
    next_job = asyncio.create_task(fleet.ensure("packages", (), {}))
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(ending, next_job)
    assert (len(begun), fleet.has_ended("packages")) == (2, False)
    await fleet.close()


async def test_packages_that_a_node_cannot_give_end_the_job_for_good(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=with_packages({"python": str(tmp_path / "none")})))
    await coordinator.until(drained("job"))
    rank = coordinator.rank("job")
    assert rank is not None
    assert rank.failure is not None
    assert rank.failure.kind == "invalid_input"
    assert "there is no such file on this node" in rank.failure.message
    assert coordinator.of("job").text == [f"environment: ERROR {rank.failure.message}"]
    await agent.end()


async def test_an_index_that_does_not_answer_costs_a_restart_and_no_job(agent: AgentProcess, coordinator: Coordinator) -> None:
    packages = {"requirements": ["--index-url http://127.0.0.1:9/simple", "six==1.17.0"]}
    agent.environment["UV_HTTP_RETRIES"] = "0"
    agent.start()
    await coordinator.desire(assignment("job", spec=with_packages(packages)))
    await coordinator.until(drained("job"))
    rank = coordinator.rank("job")
    assert rank is not None
    assert rank.failure is not None
    assert rank.failure.kind == "exit", "which is started again, as far as the job may be"
    assert "127.0.0.1:9" in rank.failure.message
    assert "ERROR environment.requirements cannot be installed" in " ".join(coordinator.of("job").text)
    await agent.end()


@pytest.mark.parametrize("packages", [{"requirements": ["einops"]}, {"python": "/venv/bin/python"}], ids=["requirements", "python"])
@pytest.mark.parametrize("account", [None, Account("eve", 7, 7, "/home/eve", "/bin/sh")], ids=["own", "run-as"])
async def test_packages_of_a_job_are_warm_in_no_process_of_an_agent_that_runs_it_as_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: dict[str, Any], account: Account | None
) -> None:
    """A spawner stays root until it has forked."""
    started = list[str]()

    async def build(*_: Any, **__: Any) -> tuple[str, Path]:
        return "key", Path("/venv/bin/python")

    async def look_at(*_: Any, **__: Any) -> InterpreterFacts:
        return InterpreterFacts("3.11.7", "2.13.0", "/venv", str(tmp_path))

    async def ensure(_: SpawnerFleet, name: str, *__: Any) -> None:
        started.append(name)

    monkeypatch.setattr(BuiltEnvironments, "interpreter", build)
    monkeypatch.setattr(preparation, "look_at", look_at)
    monkeypatch.setattr(SpawnerFleet, "ensure", ensure)
    environments = JobEnvironments(tmp_path / "environments", account, {}, fleet_in(tmp_path / "agent", []), set)
    order = RankOrder(spec=StoredSpec(with_packages(packages)), world=world("job"), folder=str(tmp_path), agent_socket="")
    interpreter = (await environments.prepare(order)).interpreter
    assert interpreter.python == "/venv/bin/python"
    assert [interpreter.spawner] == (started or [""])
    assert bool(started) == (account is None)


KILLED, FAILS = "import os; os.kill(os.getpid(), 9)", "raise SystemExit('no good')"


@pytest.mark.parametrize(
    ("program", "refusal", "says"),
    [(KILLED, OSError, "exited with code -9"), (FAILS, PackagesRefusedError, "does not start with these packages: no good")],
    ids=["killed", "fails"],
)
async def test_a_process_with_packages_that_is_killed_costs_a_restart_and_one_that_fails_by_itself_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, refusal: type[Exception], says: str
) -> None:
    """One that the OOM killer chose as it imported torch ended the job for good, with restarts left."""

    async def build(*_: Any, **__: Any) -> tuple[str, Path]:
        return "key", Path(sys.executable)

    monkeypatch.setattr(BuiltEnvironments, "interpreter", build)
    monkeypatch.setattr(preparation, "environment_command", lambda python: (str(python), "-c", program))
    environments = JobEnvironments(tmp_path / "environments", None, {}, fleet_in(tmp_path / "agent", []), set)
    spec = StoredSpec(with_packages({"requirements": ["einops"]}))
    order = RankOrder(spec=spec, world=world("job"), folder=str(tmp_path), agent_socket="")
    with pytest.raises(refusal, match=says):
        await environments.prepare(order)


def test_no_file_is_made_where_a_link_in_a_ranks_folder_leads(tmp_path: Path) -> None:
    folder = tmp_path / "rank0"
    folder.mkdir()
    spec = StoredSpec(with_packages({"requirements": ["einops"]}))
    order = RankOrder(spec=spec, world=world("job"), folder=str(folder), agent_socket="")
    (folder / "preparing").symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        preparation.begin(order)
        assert not (tmp_path / "elsewhere").exists()
        (folder / "preparing").unlink(missing_ok=True)
    preparation.begin(order)
    preparation.begin(order)
    assert (folder / "preparing").is_file()


def test_a_build_has_the_agents_settings_of_uv_and_no_more_than_ranks_have() -> None:
    agent = {"UV_INDEX_URL": "https://host/simple", "TOKEN": "secret", **os.environ}
    assert variables_for_builds({"PATH": "/bin"}, agent, None)["UV_INDEX_URL"] == "https://host/simple"
    assert "TOKEN" not in variables_for_builds({"PATH": "/bin"}, agent, None)


async def test_no_rank_with_packages_is_given_to_a_spawner_that_would_start_it_without_them(tmp_path: Path) -> None:
    """Beside ranks of before an upgrade, with --run-as, one ran with the node's Python and none of its packages."""
    told: list[str] = []
    fleet = fleet_in(tmp_path / "agent", told)
    adopted = encode_line(ProcessList(spawner_pid=os.getpid(), ranks=((RankKey("job", 1, 0), 1),)))
    connections: list[asyncio.StreamWriter] = []

    def answer(_: asyncio.StreamReader, connection: asyncio.StreamWriter) -> None:
        connections.append(connection)
        connection.write(adopted)

    server = await asyncio.start_unix_server(answer, AgentFolder(tmp_path / "agent").spawner("").socket)
    listening = asyncio.create_task(fleet.run())
    await until(lambda: told, "the process list")
    environments = JobEnvironments(tmp_path / "environments", Account("eve", 7, 7, "/home/eve", "/bin/sh"), {}, fleet, set)
    order = RankOrder(
        spec=StoredSpec(with_packages({"requirements": []})), world=world("next"), folder=str(tmp_path), agent_socket="/socket"
    )
    with pytest.raises(OSError, match="restart the agent once they have ended"):
        await environments.prepare(order)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    for connection in connections:
        connection.close()
        await connection.wait_closed()
    server.close()
    await server.wait_closed()
