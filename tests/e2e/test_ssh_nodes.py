"""Nodes on hosts with SSH, from Debian's OpenSSH on two loopback addresses to a job that trains there, and back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.e2e.conftest import taken_down
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack, wait_until
from tests.ports import free_port
from tests.sshd import needs_sshd, ssh_server

pytestmark = [pytest.mark.e2e, pytest.mark.release, needs_sshd, pytest.mark.timeout(600)]

COMMAND_SECONDS = 300.0


@pytest.fixture
def empty_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Each test's own: the nodes, pools and events of one are nothing to the next. Nothing is started yet."""
    with taken_down(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def run(stack: Stack, *words: str) -> None:
    """Run a command against the stack, which it brings up first."""
    if not stack.server:
        stack.up(free_port(), agents=0)
    done = stack.paceline(*words, "--server", stack.server, "--api-key", stack.api_key, timeout=COMMAND_SECONDS)
    assert done.returncode == 0, done.stderr + done.stdout


def ready(stack: Stack) -> list[str]:
    return [node["name"] for node in stack.get("/cluster/nodes")["items"] if node["state"] == "ready"]


def ended_of(stack: Stack, pool: str) -> list[str]:
    """What was told when launches of a pool had been ended by its provider: until then it needs the hosts, also where no node of theirs is left."""
    told = [each["message"] for each in stack.get("/events", limit=200)["items"] if each["type"] == "launch.state"]
    return [each for each in told if f"pool {pool})" in each and "-> ended" in each]


def test_two_hosts_are_installed_join_and_are_cleared_away_again(empty_stack: Stack, tmp_path: Path) -> None:
    with ssh_server(tmp_path / "one", "127.0.0.2") as one, ssh_server(tmp_path / "two", "127.0.0.3") as two:
        provider = {"type": "ssh", "hosts": [one.host, two.host | {"port": two.port}], "key_file": str(one.key_file)}
        (two.home.parent / "user_key.pub").write_bytes((one.home.parent / "user_key.pub").read_bytes())
        # torch is on this machine already, and nothing is downloaded in a test
        provider |= {"python": sys.executable, "packages_of": sys.executable, "pip_options": ["--no-index", "--no-deps"]}
        file = tmp_path / "pools.yaml"
        file.write_text(yaml.safe_dump({"pools": [{"name": "lab", "provider": provider, "slots": 1}]}))
        stack = empty_stack
        run(stack, "pools", "apply", str(file))
        run(stack, "nodes", "add", "--pool", "lab", "-n", "2")
        names = wait_until("both are ready", lambda: found if len(found := ready(stack)) == 2 else None, 240)
        for name, server in zip(sorted(names), (one, two), strict=True):
            node = next(each for each in stack.get("/cluster/nodes")["items"] if each["name"] == name)
            assert (node["provider"], node["pool"]) == ("ssh", "lab")
            assert f"@{server.address}:{server.port}/{name}#" in node["handle"]
            assert (server.home / ".paceline" / "nodes" / name / "order.json").stat().st_mode & 0o077 == 0
            run(stack, "nodes", "remove", name, "--yes")
        for server in (one, two):
            nodes = server.home / ".paceline" / "nodes"
            wait_until("its agent and what it kept are gone", lambda nodes=nodes: not any(nodes.iterdir()), 120)  # type: ignore[misc]
        wait_until("the launches are over", lambda: not stack.get("/cluster/launches")["items"], 60)


def test_a_host_whose_key_nobody_knows_is_refused_with_its_fingerprint(empty_stack: Stack, tmp_path: Path) -> None:
    with ssh_server(tmp_path / "one", "127.0.0.2") as server:
        host = f"{server.host['user']}@{server.address}:{server.port}"
        run(empty_stack, "nodes", "add", "--ssh", host, "--key-file", str(server.key_file))

        def refusal() -> str | None:
            launches = empty_stack.get("/cluster/launches")["items"]
            return next((each["reason"] for each in launches if each["reason"]), None)

        assert server.fingerprint in wait_until("it is refused", refusal, 60)
        name = f"{server.address}-{server.port}"
        run(empty_stack, "nodes", "cancel", name)


def test_a_pool_grows_for_a_job_that_waits_and_goes_when_it_has_ended(empty_stack: Stack, tmp_path: Path) -> None:
    """Nobody asks for a node: the coordinator does, and it takes them away again."""
    with ssh_server(tmp_path / "one", "127.0.0.2") as one, ssh_server(tmp_path / "two", "127.0.0.3") as two:
        provider = {"type": "ssh", "hosts": [one.host, two.host | {"port": two.port}], "key_file": str(one.key_file)}
        (two.home.parent / "user_key.pub").write_bytes((one.home.parent / "user_key.pub").read_bytes())
        pool = {"name": "grown", "provider": provider | {"environment": sys.executable}, "slots": 1}
        file = tmp_path / "pools.yaml"
        file.write_text(
            yaml.safe_dump({"pools": [pool | {"autoscale": {"device": "cpu", "idle_seconds": 5, "discards_checkpoints": True}}]})
        )
        stack = empty_stack
        run(stack, "pools", "apply", str(file))
        job = tmp_path / "job.yaml"
        training = {"steps": 200, "global_batch_size": 8}
        spec = {"name": "pair", "resources": {"nodes": 2}, "model": {"kind": "mlp", "hidden": [16]}, "data": {"kind": "digits"}}
        checkpoint = {"directory": str(tmp_path / "checkpoints")}
        job.write_text(yaml.safe_dump(spec | {"parallelism": {"strategy": "ddp"}, "training": training, "checkpoint": checkpoint}))
        run(stack, "submit", str(job))
        run(stack, "wait", "pair", "--timeout", "240")
        wait_until("its nodes are gone", lambda: not stack.get("/cluster/nodes")["items"], 120)
        wait_until("the launches are over", lambda: len(ended_of(stack, "grown")) == 2, 60)
        causes = [each["cause"] for each in stack.get("/events", limit=200)["items"] if each["actor"]["name"] == "autoscaler"]
        assert sum("waits for 2 slots" in cause for cause in causes) == 2
        assert sum("no job has used it for" in cause for cause in causes) >= 2


def test_a_pool_grows_for_a_job_that_runs_with_fewer_ranks_and_its_ranks_get_the_named_variables(
    empty_stack: Stack, tmp_path: Path
) -> None:
    """The job grows onto the node that came for it, and the node goes when it is idle. Its agent has variables of a file on its machine."""
    with ssh_server(tmp_path / "one", "127.0.0.2") as one:
        variables = one.home / "agent.env"
        variables.write_text("BUCKET_KEY='of the bucket'\nOTHER_KEY=hidden\n")
        variables.chmod(0o600)
        provider = {"type": "ssh", "hosts": [one.host], "key_file": str(one.key_file), "environment": sys.executable}
        provider |= {"pass_env": ["BUCKET_*"], "variables_file": "~/agent.env"}
        pool = {
            "name": "grown",
            "provider": provider,
            "slots": 1,
            "autoscale": {"device": "cpu", "idle_seconds": 5, "discards_checkpoints": True},
        }
        file = tmp_path / "pools.yaml"
        file.write_text(yaml.safe_dump({"pools": [pool]}))
        stack = empty_stack
        stack.up(free_port(), agents=1)
        run(stack, "pools", "apply", str(file))
        document = tiny_gpt("small", 100_000, nodes=2, checkpoint={"directory": str(tmp_path / "checkpoints")})
        document["resources"] = {"nodes": 2, "min_nodes": 1}
        job = stack.submit(document)
        wait_until("it runs with one rank", lambda: len(ranks(stack, job)) == 1, 120)
        wait_until("it has grown", lambda: len(ranks(stack, job)) == 2, 240)
        causes = [each["cause"] for each in stack.get("/events", limit=200)["items"] if each["actor"]["name"] == "autoscaler"]
        assert f"job {job} runs with 1 of 2 ranks" in causes
        (grown,) = [node for node in stack.get("/cluster/nodes")["items"] if node["pool"] == "grown"]
        told = stack.paceline("exec", job, "--rank", "1", "--server", stack.server, "--api-key", stack.api_key, "--", "env", timeout=60)
        assert "BUCKET_KEY=of the bucket" in told.stdout
        assert "OTHER_KEY" not in told.stdout
        stack.cancel(job)
        wait_until("its node is gone", lambda: len(ready(stack)) == 1, 120)
        assert grown["name"] not in ready(stack)
        again = [each["type"] for each in stack.get("/events", limit=200)["items"] if each["actor"]["name"] == "autoscaler"]
        assert again.count("launch.requested") == 1, "and none follows"


def test_an_agent_is_upgraded_in_place_and_saves_before_its_host_goes_down(empty_stack: Stack, tmp_path: Path) -> None:
    """By the commands of docs/nodes.md: ranks live on. SIGTERM, by which a host without systemd goes down, ended them without a save."""
    stack = empty_stack
    with ssh_server(tmp_path / "one", "127.0.0.2") as one:
        provider = {"type": "ssh", "hosts": [one.host], "key_file": str(one.key_file), "environment": sys.executable}
        file = tmp_path / "pools.yaml"
        file.write_text(yaml.safe_dump({"pools": [{"name": "lab", "provider": provider, "slots": 1}]}))
        run(stack, "pools", "apply", str(file))
        run(stack, "nodes", "add", "--pool", "lab")
        (name,) = wait_until("it is ready", lambda: ready(stack), 120)
        node = one.home / ".paceline" / "nodes" / name
        checkpoint = {"directory": str(tmp_path / "checkpoints"), "every_steps": None}
        job = stack.submit(tiny_gpt("upgraded", 1_000_000, nodes=1) | {"checkpoint": checkpoint})
        stack.wait_for_step(job, 5, 120)

        old = agent_of(node)
        upgrade = upgrade_lines().replace("~/.paceline/nodes/NODE", str(node))
        subprocess.run(["bash", "-euc", upgrade], env={**os.environ, "HOME": str(one.home)}, timeout=120, check=True)
        wait_until("the new agent runs", lambda: agent_of(node) != old, 60)
        new = psutil.Process(agent_of(node))
        try:
            step = stack.job(job)["progress"]["step"]
            stack.wait_for_step(job, step + 20, 120)
            assert (stack.job(job)["state"], stack.job(job)["generation"]) == ("running", 1), "its rank was adopted"
            assert not stack.get(f"/checkpoints/jobs/{job}")["items"]
            new.terminate()
            wait_until("it has saved", lambda: [each["step"] > step for each in stack.get(f"/checkpoints/jobs/{job}")["items"]], 120)
            new.wait(60)
        finally:
            if new.is_running():
                new.send_signal(signal.SIGINT)
                new.wait(60)
        assert stack.job(job)["state"] not in ("running", "failed")
        stack.cancel(job)


def test_the_nodes_of_a_pool_are_launched_anew_while_their_job_moves_on(empty_stack: Stack, tmp_path: Path) -> None:
    """By one command, as docs/nodes.md has it for an upgrade: one host after the other, with what the pool says by then."""
    stack = empty_stack
    with ssh_server(tmp_path / "one", "127.0.0.2") as one, ssh_server(tmp_path / "two", "127.0.0.3") as two:
        (two.home.parent / "user_key.pub").write_bytes((one.home.parent / "user_key.pub").read_bytes())
        hosts = [one.host, two.host | {"port": two.port}]
        provider = {"type": "ssh", "hosts": hosts, "key_file": str(one.key_file), "environment": sys.executable}
        pool, file = {"name": "lab", "provider": provider, "slots": 1}, tmp_path / "pools.yaml"
        file.write_text(yaml.safe_dump({"pools": [pool]}))
        run(stack, "pools", "apply", str(file))
        run(stack, "nodes", "add", "--pool", "lab", "-n", "2")
        names = sorted(wait_until("both are ready", lambda: found if len(found := ready(stack)) == 2 else None, 240))
        old = {node["id"] for node in stack.get("/cluster/nodes")["items"]}
        checkpoint = {"directory": str(tmp_path / "checkpoints"), "every_steps": None}
        job = stack.submit(tiny_gpt("moving", 1_000_000, nodes=1) | {"checkpoint": checkpoint})
        stack.wait_for_step(job, 5, 120)

        file.write_text(yaml.safe_dump({"pools": [pool | {"labels": {"since": "upgrade"}}]}))
        run(stack, "pools", "apply", str(file))
        run(stack, "nodes", "upgrade", "--pool", "lab", "--yes")
        nodes = stack.get("/cluster/nodes")["items"]
        assert sorted(node["name"] for node in nodes) == names
        assert {(node["state"], node["labels"]["since"]) for node in nodes} == {("ready", "upgrade")}
        assert not old & {node["id"] for node in nodes}
        stack.wait_for_step(job, stack.job(job)["progress"]["step"] + 5, 120)
        assert stack.job(job)["state"] == "running"
        stack.cancel(job)


def agent_of(node: Path) -> int:
    """The process of a node's agent, by the folder of the node."""
    return int(json.loads((node / "status.json").read_text())["pid"])


def upgrade_lines() -> str:
    """The lines of docs/nodes.md for an agent that is a process of its own session."""
    page = (Path(__file__).parents[2] / "docs" / "nodes.md").read_text()
    return page.partition("is a process of its own session:\n\n")[2].partition("\n\n")[0]


def ranks(stack: Stack, job: str) -> list[dict[str, object]]:
    """The ranks of a job that have a place and run."""
    return [each for each in stack.job(job)["ranks"] if each["state"] == "running"]
