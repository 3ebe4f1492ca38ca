"""A later version of Paceline on a cluster that runs: the wheel of this checkout on hosts with SSH, then one with a later version, by the commands of the docs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack, wait_until
from tests.e2e.wheels import Installed, build_wheel, copy_of_checkout, installed, set_version, version_of
from tests.ports import free_port
from tests.sshd import SshServer, needs_sshd, ssh_server

pytestmark = [pytest.mark.e2e, pytest.mark.release, needs_sshd, pytest.mark.timeout(1200)]

READY_SECONDS, STEP_SECONDS, UPGRADE_SECONDS = 300.0, 200.0, 500.0


class InstalledStack(Stack):
    """A coordinator from a wheel that is installed, in its user's home."""

    def __init__(self, here: Installed, port: int) -> None:
        super().__init__(here.home / ".paceline")
        self.here, self._port = here, port

    def start(self) -> None:
        self.here.expect("up", "--agents", "0", "--port", str(self._port))
        known = json.loads((self.data / "credentials.json").read_text())
        self.server = known["server"]
        self._client = httpx.Client(base_url=f"{self.server}/api/v1", headers={"Authorization": f"Bearer {known['api_key']}"}, timeout=10)

    def stop(self) -> None:
        self.client.close()
        self.here.expect("down")

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes that are ready, by name."""
        return {node["name"]: node for node in self.get("/cluster/nodes")["items"] if node["state"] == "ready"}

    def versions(self) -> set[str]:
        return {node["versions"]["paceline"] for node in self.nodes().values()}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two wheels by their versions, the older one first."""
    checkout = copy_of_checkout(tmp_path_factory.mktemp("checkout"))
    first = version_of(checkout)
    major, minor, *_ = first.split(".")
    found = dict[str, Path]()
    for version in (first, f"{major}.{int(minor) + 1}.0"):
        set_version(checkout, version)
        found[version] = build_wheel(tmp_path_factory.mktemp("wheel"), checkout)
    return found


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[SshServer]]:
    with ssh_server(tmp_path / "one", "127.0.0.2") as one, ssh_server(tmp_path / "two", "127.0.0.3") as two:
        (two.home.parent / "user_key.pub").write_bytes((one.home.parent / "user_key.pub").read_bytes())
        yield [one, two]


def pool_of(hosts: list[SshServer]) -> dict[str, Any]:
    """Hosts on which the coordinator's Paceline is installed. torch is on this machine already, and nothing is downloaded in a test."""
    provider = {"type": "ssh", "hosts": [host.host for host in hosts], "key_file": str(hosts[0].key_file)}
    provider |= {"python": sys.executable, "packages_of": sys.executable, "pip_options": ["--no-index", "--no-deps"]}
    return {"pools": [{"name": "lab", "provider": provider, "slots": 1}]}


def installed_at(host: SshServer) -> set[str]:
    """The versions of Paceline in the environments that a host has."""
    found = (host.home / ".paceline" / "environments").glob("*/lib/python*/site-packages/paceline-*.dist-info")
    return {each.name.removeprefix("paceline-").removesuffix(".dist-info") for each in found}


def assert_on_the_same_hosts(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, node in before.items():
        assert (after[name]["pool"], after[name]["address"]) == ("lab", node["address"])
        assert after[name]["handle"].partition("#")[0] == node["handle"].partition("#")[0]


def test_hosts_get_the_version_of_the_coordinator_one_after_the_other_while_their_job_goes_on(
    wheels: dict[str, Path], hosts: list[SshServer], tmp_path: Path
) -> None:
    old, new = wheels
    here = installed(tmp_path, "--no-deps", wheels[old])
    here.borrow_packages()
    stack = InstalledStack(here, free_port())
    stack.start()
    try:
        (here.home / "pools.yaml").write_text(yaml.safe_dump(pool_of(hosts)))
        here.expect("pools", "apply", "pools.yaml")
        here.expect("nodes", "add", "--pool", "lab", "-n", "2")
        before = wait_until("both are ready", lambda: found if len(found := stack.nodes()) == 2 else None, READY_SECONDS)
        assert stack.versions() == {old}
        checkpoint = {"directory": str(tmp_path / "checkpoints"), "every_steps": None}
        job = stack.submit(tiny_gpt("moving", 1_000_000, nodes=1) | {"checkpoint": checkpoint})
        stack.wait_for_step(job, 5, STEP_SECONDS)

        stack.stop()
        here.install("--no-deps", wheels[new])
        stack.start()
        assert new in here.expect("--version")
        wait_until("the old agents to be back", lambda: stack.nodes().keys() == before.keys(), READY_SECONDS)
        assert stack.versions() == {old}, "old agents work with a new coordinator"
        stack.wait_for_step(job, stack.job(job)["progress"]["step"] + 5, STEP_SECONDS)
        assert (stack.job(job)["state"], stack.job(job)["generation"]) == ("running", 1), "the coordinator's upgrade cost it nothing"

        step = stack.job(job)["progress"]["step"]
        said = here.expect("nodes", "upgrade", "--pool", "lab", "--yes", timeout=UPGRADE_SECONDS)
        assert all(f"{name} is ready, with Paceline {new}" in said for name in before), said
        after = stack.nodes()
        assert stack.versions() == {new}
        assert new in here.expect("nodes")
        assert_on_the_same_hosts(before, after)
        assert stack.wait_for_step(job, step + 5, STEP_SECONDS) >= step
        moved = stack.job(job)
        assert (moved["state"], moved["restarts"]) == ("running", 0)
        assert moved["generation"] > 1
        starts = [each["start_step"] for each in moved["generations"]]
        assert all(start >= step for start in starts if start), "each move saved first"
        assert all(new in installed_at(host) for host in hosts)
        stack.cancel(job)
        for name in after:
            here.expect("nodes", "remove", name, "--yes")
        wait_until("both are gone", lambda: not stack.get("/cluster/launches")["items"], READY_SECONDS)
        wait_until("only the new environments are left", lambda: [installed_at(host) for host in hosts] == [{new}] * 2, READY_SECONDS)
    finally:
        stack.stop()
