"""`up`, `down` and `demo` with a real coordinator: idempotent, persistent, and nothing is left, however they end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import typer
from typer.testing import CliRunner

from paceline.cli.commands import stack as commands
from paceline.cli.errors import StackError
from paceline.cli.local.exposure import addresses
from paceline.cli.local.layout import Layout
from paceline.cli.local.processes import all_processes, find, marked, recorded
from paceline.cli.local.programs import StackPlan, agent_program, coordinator_program
from paceline.cli.local.stack import Report, Stack
from tests.cli.conftest import ROOT, Paceline
from tests.ports import free_port
from tests.waiting import wait_until

WAIT_S = 60
NO_AGENTS = ("--agents", "0")


@pytest.fixture
def layout(tmp_path: Path, stranger: Paceline) -> Iterator[Layout]:
    """Of the project folder that `stranger` works in."""
    layout = Layout.at(tmp_path / ".paceline")
    yield layout
    stranger("down")


def up(paceline: Paceline, *arguments: str) -> dict[str, Any]:
    done = paceline("up", "--json", *NO_AGENTS, *arguments)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_up_is_idempotent_and_down_leaves_nothing(stranger: Paceline, layout: Layout) -> None:
    first = up(stranger, "--port", str(free_port()))
    assert first["started"] == ["coordinator"]
    assert "/login?token=" in first["login_link"]
    second = up(stranger)
    assert (second["server"], second["started"]) == (first["server"], [])
    assert stranger("jobs").returncode == 0  # signed in by the project file
    assert "login?token=" not in layout.log("coordinator").read_text()  # a log is no place for what signs an admin in
    private = (layout.data, layout.run, layout.log("coordinator"), layout.data / "paceline.db", layout.credentials)
    assert {str(path): oct(path.stat().st_mode & 0o077) for path in private} == {str(path): "0o0" for path in private}
    assert stranger("down").returncode == 0
    assert marked(layout) == []
    assert stranger("jobs").returncode == 7
    assert json.loads(stranger("down", "--json").stdout) == {"stopped": 0}


def test_stack_is_reached_from_other_folders_once_its_line_was_typed(
    stranger: Paceline, layout: Layout, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = stranger("up", *NO_AGENTS, "--port", str(free_port()))
    line = f"to use it from other folders too: paceline login --data {layout.data}"
    assert line in done.stderr
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    other = replace(stranger, folder=elsewhere, environment={"HOME": str(tmp_path / "home")})
    assert other("jobs").returncode == 7
    login = other("login", "--data", str(layout.data))
    assert login.returncode == 0, login.stderr
    stored = tmp_path / "home" / ".config" / "paceline" / "credentials.json"
    assert (json.loads(stored.read_text()), oct(stored.stat().st_mode & 0o777)) == (json.loads(layout.credentials.read_text()), "0o600")
    assert "user file" in other("config", "explain", "server").stdout
    assert other("jobs").returncode == 0
    assert line not in stranger("up", *NO_AGENTS).stderr


def test_login_names_a_folder_without_a_stack(stranger: Paceline, tmp_path: Path) -> None:
    done = stranger("login", "--data", "nowhere")
    assert done.returncode == 2
    assert f"there is no stack in {tmp_path / 'nowhere'}" in done.stderr


def test_next_steps_name_a_data_folder_that_is_not_the_default(stranger: Paceline, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    done = stranger("up", *NO_AGENTS, "--port", str(free_port()), "--data", str(folder))
    assert f"paceline down --data {folder}" in done.stderr
    assert json.loads(stranger("down", "--data", str(folder), "--json").stdout) == {"stopped": 1}


def test_used_port_is_passed_over_and_said(stranger: Paceline, layout: Layout) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = stranger("up", "--port", str(port), *NO_AGENTS, "--json")
    assert done.returncode == 0, done.stderr
    assert f"port {port} is used; taking" in done.stderr
    assert json.loads(done.stdout)["server"] != f"http://127.0.0.1:{port}"


def test_state_survives_down_and_up(stranger: Paceline, layout: Layout) -> None:
    up(stranger, "--port", str(free_port()))
    submitted = stranger("submit", str(ROOT / "examples" / "digits_mlp.yaml"), "--json")
    assert submitted.returncode == 0, submitted.stderr
    stranger("down")
    up(stranger, "--port", str(free_port()))
    listed = json.loads(stranger("jobs", "--json").stdout)
    assert [job["id"] for job in listed] == [json.loads(submitted.stdout)["id"]]


def test_agents_follow_the_coordinator_to_another_port_and_nothing_runs_without_them(stranger: Paceline, layout: Layout) -> None:
    """Their credentials name the old address; a second token would be refused, for the node's name is known. Once they had been stopped, their
    node was ready for ten seconds more: the next job was placed there, and failed."""
    for _ in range(2):
        done = stranger("up", "--json", "--agents", "1", "--port", str(free_port()))
        assert done.returncode == 0, done.stderr
        assert "starting 1 agent: local-1\n" in done.stderr
        assert stranger("down").returncode == 0
    up(stranger, "--port", str(free_port()))
    assert state_of_nodes(stranger) == ["unreachable"]
    submitted = stranger("submit", str(ROOT / "examples" / "digits_mlp.yaml"), "--json")
    assert submitted.returncode == 0, submitted.stderr
    wait_until(lambda: json.loads(stranger("jobs", "--json").stdout)[0]["pending"], "the scheduler's look at the job", seconds=WAIT_S)
    (job,) = json.loads(stranger("jobs", "--json").stdout)
    assert (job["state"], job["pending"]["code"]) == ("queued", "nodes_unavailable"), job


def test_killed_coordinator_comes_back_on_its_port(stranger: Paceline, layout: Layout) -> None:
    first = up(stranger, "--port", str(free_port()))
    (record,) = recorded(layout)
    coordinator = find(record)
    assert coordinator is not None
    coordinator.send_signal(signal.SIGKILL)
    coordinator.wait(WAIT_S)
    second = up(stranger)
    assert (second["server"], second["started"]) == (first["server"], ["coordinator"])


def test_key_of_a_forgotten_database_is_replaced(stranger: Paceline, layout: Layout) -> None:
    up(stranger, "--port", str(free_port()))
    stranger("down")
    for database in layout.data.glob("*.db*"):
        database.unlink()
    up(stranger, "--port", str(free_port()))
    assert stranger("jobs").returncode == 0


def test_a_new_key_of_this_machine_takes_the_place_of_the_old_one(stranger: Paceline, layout: Layout) -> None:
    server = up(stranger, "--port", str(free_port()))["server"]
    old = json.loads(layout.credentials.read_text())["api_key"]
    layout.credentials.unlink()
    up(stranger)
    assert stranger("jobs").returncode == 0
    answer = httpx.get(f"{server}/api/v1/auth/me", headers={"Authorization": f"Bearer {old}"}, timeout=WAIT_S)
    assert answer.status_code == 401, answer.text


def stack_of_up(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Layout, StackPlan]:
    """What `paceline up` with these words, typed in this folder, would bring up, and where."""
    wanted = list[tuple[Layout, StackPlan]]()

    def bring_up(layout: Layout, plan: StackPlan, report: Report) -> Stack:
        wanted.append((layout, plan))
        raise StackError("this is as far as it goes")

    monkeypatch.setattr("paceline.cli.local.stack.bring_up", bring_up)
    monkeypatch.chdir(folder)
    application = typer.Typer()
    application.command()(commands.up)
    result = CliRunner().invoke(application, words)
    assert "this is as far as it goes" in result.stderr
    (stack,) = wanted
    return stack


def test_the_data_folder_is_that_of_the_environment_unless_one_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`PACELINE_DATA=/x paceline up` used .paceline without a word."""
    assert stack_of_up(tmp_path, monkeypatch, *NO_AGENTS)[0].data == tmp_path / ".paceline"
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "kept"))
    assert stack_of_up(tmp_path, monkeypatch, *NO_AGENTS)[0].data == tmp_path / "kept"
    assert stack_of_up(tmp_path, monkeypatch, *NO_AGENTS, "--data", "given")[0].data == tmp_path / "given"
    monkeypatch.setenv("PACELINE_DATA", "")
    assert stack_of_up(tmp_path, monkeypatch, *NO_AGENTS)[0].data == tmp_path / ".paceline"


def test_agents_of_up_save_where_they_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that machines share was for agents of `paceline worker` alone: no job over them and one of `up` could save there."""
    layout, plan = stack_of_up(tmp_path, monkeypatch, "--agents", "1", "--gpus", "none", "--checkpoints", "mnt/shared")
    arguments = [agent_program(layout, each, "http://127.0.0.1:1", "local-1", None).arguments for each in (plan, StackPlan())]
    saves_in = [each[each.index("--checkpoints") + 1] for each in arguments]
    assert saves_in == [str(tmp_path / "mnt" / "shared"), str(layout.checkpoints)]


@pytest.mark.parametrize(("variables", "number"), [({}, signal.SIGTERM), ({"SLURM_JOB_ID": "7"}, signal.SIGINT)])
def test_a_stack_in_a_job_of_slurm_outlives_the_sigterm_that_all_of_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], number: signal.Signals
) -> None:
    """It ended at once, while ranks were saving: nobody learned what they printed, and how they ended."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    layout, plan = stack_of_up(tmp_path, monkeypatch, *NO_AGENTS)
    programs = (
        coordinator_program(layout, plan, ["127.0.0.1"], 1, None, []),
        agent_program(layout, plan, "http://127.0.0.1:1", "local-1", "pj_token"),
    )
    assert [each.ends_on for each in programs] == [number, number]
    is_told = [word in each.arguments for word, each in zip(("--ignore-sigterm", "--drain-on-term"), programs, strict=True)]
    assert is_told == [number == signal.SIGINT] * 2


@pytest.fixture
def address() -> str:
    """Under which other machines would reach this one."""
    found = addresses()
    if not found:
        pytest.skip("this machine has no network besides loopback")
    return found[0]


def test_up_with_a_host_is_open_there_and_heals_so(stranger: Paceline, layout: Layout, address: str) -> None:
    port = free_port()
    first = up(stranger, "--port", str(port), "--host", address, "--insecure-public")
    public = f"http://{address}:{port}"
    assert (first["server"], first["public_url"]) == (f"http://127.0.0.1:{port}", public)
    assert first["login_link"].startswith(f"{public}/login?token=")
    assert first["join_command"].startswith(f"paceline worker --server {public} --token ")
    assert json.loads(stranger("nodes", "add", "--json").stdout)["command"].startswith(f"paceline worker --server {public} ")
    (record,) = recorded(layout)
    coordinator = find(record)
    assert coordinator is not None
    listening = {(each.laddr.ip, each.laddr.port) for each in coordinator.net_connections("tcp4") if each.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", port), (address, port)}
    coordinator.send_signal(signal.SIGKILL)
    coordinator.wait(WAIT_S)
    assert up(stranger)["public_url"] == public  # healed as it was
    assert httpx.get(f"{public}/login", timeout=WAIT_S).status_code != 403
    stranger("down")
    assert "public_url" not in up(stranger, "--port", str(free_port()))


def test_local_agents_of_an_open_stack_are_met_at_its_address(stranger: Paceline, layout: Layout, address: str) -> None:
    done = stranger("up", "--agents", "1", "--port", str(free_port()), "--host", address, "--insecure-public")
    assert done.returncode == 0, done.stderr
    assert "plain http: keys travel readable" in done.stdout
    (node,) = json.loads(stranger("nodes", "--json").stdout)
    assert node["address"] == address


def test_behind_tls_the_coordinator_stays_on_loopback(stranger: Paceline, layout: Layout, address: str) -> None:
    port = free_port()
    opened = up(stranger, "--port", str(port), "--host", address, "--public-url", "https://train.example/")
    assert opened["login_link"].startswith("https://train.example/login?token=")
    assert opened["join_command"].startswith("paceline worker --server https://train.example --token ")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, port), timeout=WAIT_S)
    by_proxy = {"Host": "train.example", "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"}
    key = json.loads(layout.credentials.read_text())["api_key"]
    answer = httpx.get(f"{opened['server']}/api/v1/auth/me", headers=by_proxy | {"Authorization": f"Bearer {key}"}, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    readable = by_proxy | {"X-Forwarded-Proto": "http"}
    assert httpx.get(f"{opened['server']}/api/v1/auth/me", headers=readable, timeout=WAIT_S).json()["code"] == "insecure_transport"


def test_a_running_stack_is_not_opened_behind_the_back_of_its_ranks(stranger: Paceline, layout: Layout, address: str) -> None:
    up(stranger, "--port", str(free_port()))
    done = stranger("up", *NO_AGENTS, "--host", address, "--insecure-public")
    assert done.returncode == 1
    assert "runs already, and is on loopback only" in done.stderr
    assert "paceline down" in done.stderr


def test_coordinator_that_cannot_start_shows_why(stranger: Paceline, layout: Layout) -> None:
    done = stranger("up", "--port", str(free_port()), *NO_AGENTS, DATABASE_URL="postgresql://nobody@127.0.0.1:9/nowhere")
    assert done.returncode == 1
    assert "coordinator ended while starting" in done.stderr
    assert "  | " in done.stderr


@pytest.mark.slow("a stack comes up twice, and fails once")
def test_agents_that_started_beside_a_coordinator_that_cannot_start_end_with_it(stranger: Paceline, layout: Layout) -> None:
    done = stranger("up", "--port", str(free_port()), "--agents", "1", DATABASE_URL="postgresql://nobody@127.0.0.1:9/nowhere")
    assert done.returncode == 1
    assert "starting 1 agent: local-1\n" in done.stderr
    assert "coordinator ended while starting" in done.stderr
    assert find_agent(layout) is None
    wait_until(lambda: not marked(layout), "the end of the agent's spawner", seconds=WAIT_S)
    assert stranger("up", "--json", "--agents", "1", "--port", str(free_port())).returncode == 0


@pytest.mark.parametrize("is_missed", [True, False], ids=["once_it_is_missed", "before_it_is_missed"])
def test_an_agent_whose_node_was_removed_joins_anew_at_the_next_up(stranger: Paceline, layout: Layout, is_missed: bool) -> None:
    """`up` failed each time, until its folder was deleted by hand; and once where the coordinator still waited to tell the dead agent to leave."""
    one_agent = ("up", "--json", "--agents", "1", "--slots-per-agent", "1")
    assert stranger(*one_agent, "--port", str(free_port())).returncode == 0
    (old,) = json.loads(stranger("nodes", "--json").stdout)
    agent = find_agent(layout)
    assert agent is not None
    agent.kill()  # one that lives when its node is removed forgets its credential by itself
    agent.wait(WAIT_S)
    if is_missed:
        wait_until(lambda: state_of_nodes(stranger) == ["unreachable"], "the coordinator to miss the agent", seconds=WAIT_S)
    assert stranger("nodes", "remove", "local-1", "--force").returncode == 0
    again = stranger(*one_agent)
    assert again.returncode == 0, again.stderr
    assert "local-1 was removed from the cluster; it joins as a new node" in again.stderr
    nodes = json.loads(stranger("nodes", "--status", "ready", "--json").stdout)
    assert [node["name"] for node in nodes] == ["local-1"]
    assert nodes[0]["id"] != old["id"]


def state_of_nodes(stranger: Paceline) -> list[str]:
    return [node["state"] for node in json.loads(stranger("nodes", "--json").stdout)]


def find_agent(layout: Layout) -> psutil.Process | None:
    return next((found for record in recorded(layout) if record.name == "local-1" and (found := find(record))), None)


@pytest.fixture
def demo(stranger: Paceline, layout: Layout) -> Iterator[subprocess.Popen[str]]:
    """A demo whose job waits for nodes that never come."""
    process = stranger.start("demo", str(ROOT / "examples" / "digits_mlp.yaml"), "--port", str(free_port()), *NO_AGENTS)
    assert process.stdout is not None
    wait_for_line(process.stdout, "queued")
    assert marked(layout)
    yield process
    process.kill()
    process.communicate(timeout=WAIT_S)


def wait_for_line(lines: Any, text: str) -> None:
    assert any(text in line for line in lines), f"ended without saying {text!r}"


def test_a_demo_at_a_terminal_stays_up_after_training_and_says_how_to_end_it(stranger: Paceline, layout: Layout) -> None:
    """Seven seconds after the link was printed, training was over and the link dead."""
    one_agent = ("--agents", "1", "--slots-per-agent", "1", "--port", str(free_port()))
    code, shown = stranger.at_terminal(
        "demo", str(ROOT / "examples" / "digits_mlp.yaml"), *one_agent, until="Press Ctrl-C to stop everything.", typed="\x03"
    )
    assert code == 0, shown
    after_training = shown.partition(" completed at step ")[2]
    assert "The stack stays up: http://127.0.0.1:" in after_training
    assert "/login?token=" in after_training
    assert marked(layout) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_demo_stops_everything_before_it_ends(demo: subprocess.Popen[str], layout: Layout, number: signal.Signals) -> None:
    demo.send_signal(number)
    demo.communicate(timeout=WAIT_S)
    assert demo.returncode == 130
    assert marked(layout) == []


def test_killed_demo_leaves_nothing(demo: subprocess.Popen[str], layout: Layout) -> None:
    demo.kill()
    wait_until(lambda: marked(layout) == [] and not watchdogs(layout), "the end of all processes", seconds=WAIT_S)
    assert (marked(layout), watchdogs(layout), recorded(layout)) == ([], [], [])


def test_demo_does_not_wait_for_the_job_of_an_interrupted_one(demo: subprocess.Popen[str], stranger: Paceline, layout: Layout) -> None:
    demo.kill()
    wait_until(lambda: marked(layout) == [], "the end of all processes", seconds=WAIT_S)
    again = stranger.start("demo", str(ROOT / "examples" / "digits_mlp.yaml"), "--port", str(free_port()), *NO_AGENTS)
    assert again.stdout is not None
    wait_for_line(again.stdout, "queued")
    jobs = json.loads(stranger("jobs", "--json").stdout)
    again.kill()
    again.communicate(timeout=WAIT_S)
    assert sorted(job["state"] for job in jobs) == ["cancelled", "queued"]


def test_demo_uses_a_stack_that_is_up_and_leaves_it(stranger: Paceline, layout: Layout) -> None:
    up(stranger, "--port", str(free_port()))
    process = stranger.start("demo", str(ROOT / "examples" / "digits_mlp.yaml"), *NO_AGENTS)
    assert process.stdout is not None
    wait_for_line(process.stdout, "queued")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=WAIT_S)
    assert marked(layout)


def watchdogs(layout: Layout) -> list[psutil.Process]:
    return [process for process in all_processes() if str(layout.data) in command_of(process)]


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
