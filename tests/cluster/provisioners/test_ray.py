"""Agents as actors of Ray: on a real Ray of this machine in `make test-all`, and what can be said without one always."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError
from paceline.cluster.provisioners.ray import RayProvisioner, agent_command
from paceline.cluster.provisioners.ray_agent import agent_keeper
from paceline.cluster.provisioners.ray_settings import RaySettings
from tests.cluster.provisioners.conformance import TOKEN, ProviderEngine, ProvisionerConformance, request
from tests.ports import free_port
from tests.processes import kill_all
from tests.waiting import until

#: A head whose agents, dashboard and metrics are left out: one raylet with two CPUs and 80 MB of objects.
START = "start --head --port {port} --num-cpus 2 --num-gpus 0 --object-store-memory 80000000 --include-dashboard false --disable-usage-stats --block"
HEAD_SECONDS = 60.0
AGENT = '#!/bin/bash\necho "$@" >>{folder}/calls\nenv | grep PACELINE_JOIN_TOKEN >>{folder}/token\nexec sleep 300\n'


def test_the_agent_gets_what_the_pool_and_the_node_say() -> None:
    words = agent_command(RaySettings(address="10.0.0.1:6379", cpus=3, checkpoints="/shared"), request(slots=None))
    assert words[words.index("--slots") + 1] == "3"
    assert words[words.index("--gpus") + 1] == "none"
    assert words[words.index("--checkpoints") + 1] == "/shared"
    assert words[words.index("--data") + 1] == "~/.paceline/nodes/work-bcdfg"
    patient = agent_command(RaySettings(address="10.0.0.1:6379", drain_seconds=600), request(slots=None))
    assert [patient[patient.index(flag) + 1] for flag in ("--drain-on-term", "--drain-seconds")] == ["600", "600"]
    assert TOKEN not in words
    with_cards = agent_command(RaySettings(address="10.0.0.1:6379", gpus=2), request(slots=None))
    assert not {"--gpus", "--slots"} & set(with_cards)  # the cards of CUDA_VISIBLE_DEVICES, as Ray sets it


async def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    provisioner = RayProvisioner(RaySettings(address="10.0.0.1:6379"), ProvisionerContext(tmp_path, lambda _: None))
    with pytest.raises(ProvisionerError, match="has no Ray") as refused:
        await provisioner.poll(["paceline-a"])
    assert "paceline[ray]" in refused.value.remedy


@pytest.mark.parametrize("fields", [{"address": "auto"}, {"gpus": -1}, {"resources": {"tpu": 0}}], ids=["address", "gpus", "resources"])
def test_settings_that_cannot_be_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RaySettings(**{"address": "10.0.0.1:6379", **fields})


def test_a_node_that_is_gone_leaves_no_packages_and_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch has a folder of its own: after some hundred of them the disk was full."""
    over = threading.Event()
    util = SimpleNamespace(get_placement_group=lambda name: name, remove_placement_group=lambda _: over.set())
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(util=util))
    for name in ("checkpoints", "environments", "bundles"):
        (tmp_path / name / "key").mkdir(parents=True)
    agent_keeper()(["true", "--data", str(tmp_path)], TOKEN, "group")
    assert over.wait(30.0)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints"}


class RayHead(ProviderEngine):
    """The provider on a real Ray, with a program in the place of the agent."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        (folder / "paceline").write_text(AGENT.format(folder=folder))
        (folder / "paceline").chmod(0o755)
        words = [str(Path(sys.executable).parent / "ray"), *START.format(port=self.port).split()]
        with (folder / "head.log").open("wb") as log:
            self.head = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "RAY_DISABLE_IMPORT_WARNING": "1"})
        settings = RaySettings(address=f"127.0.0.1:{self.port}", paceline=str(folder / "paceline"), directory=str(folder))
        self.provisioner = RayProvisioner(settings, ProvisionerContext(folder, lambda _: None))

    def listens(self) -> bool:
        """Whether the head has come so far that it answers."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def has_cpus(self) -> bool:
        return self.ask("ray.cluster_resources().get('CPU')").stdout.strip() == "2.0"

    def started(self) -> int:
        return int(self.look("len(ray.util.list_named_actors())"))

    def break_down(self) -> None:
        self.stop()

    def visible(self) -> str:
        return self.look("(ray.util.list_named_actors(), ray.util.placement_group_table())")

    def look(self, what: str) -> str:
        done = self.ask(what)
        done.check_returncode()
        return done.stdout

    def ask(self, what: str) -> subprocess.CompletedProcess[str]:
        """What Python makes of it in a process that is connected to this head: Ray ends such a process when it has lost the head."""
        program = f"import ray; ray.init(address='127.0.0.1:{self.port}', namespace='paceline', log_to_driver=False); print({what})"
        return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=False)

    def stop(self) -> None:
        if self.head.poll() is None:
            head = psutil.Process(self.head.pid)
            kill_all([head, *head.children(recursive=True)])
        self.head.wait()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RayHead]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("pip install 'paceline[ray]'")
    head = RayHead(tmp_path)
    try:
        await until(head.listens, "the head listens", seconds=HEAD_SECONDS)
        await until(head.has_cpus, "the head has its CPUs", seconds=HEAD_SECONDS)
        yield head
        assert isinstance(head.provisioner, RayProvisioner)
        await head.provisioner.close()
    finally:
        head.stop()


@pytest.mark.release
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
class TestRay(ProvisionerConformance):
    """Every promise of a provider."""


@pytest.mark.release
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
async def test_a_node_waits_for_room_and_its_token_is_in_its_environment_alone(engine: RayHead) -> None:
    first, second = await engine.provisioner.launch(request("a")), await engine.provisioner.launch(request("b"))
    third = await engine.provisioner.launch(request("c"))
    await until(lambda: (engine.folder / "token").exists(), "the agents' start", seconds=60.0)
    found = await engine.provisioner.poll([first, second, third])
    assert [found[each].phase for each in (first, second, third)] == [LaunchPhase.RUNNING, LaunchPhase.RUNNING, LaunchPhase.PENDING]
    assert "ray status" in found[third].reason
    assert TOKEN not in (engine.folder / "calls").read_text()
    await engine.provisioner.terminate(third)
    await engine.provisioner.terminate(first)
