"""A stack of our own to break: a coordinator and agents on this machine, in a folder that is gone afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline.cli.answers import parsed
from paceline.cli.api_types import Node
from paceline.cli.client import RestClient
from paceline.cli.local.layout import MARK, Layout
from paceline.cli.local.ports import free_port
from paceline.cli.local.processes import BackgroundProgram, start
from paceline.cli.local.programs import COORDINATOR, StackPlan
from paceline.cli.local.stack import bring_up, take_down
from paceline.cli.settings import JOIN_TOKEN, child_environment
from scripts.faults import strikes
from scripts.faults.gang import Victim
from scripts.faults.network import Network
from scripts.steps import ROOT, say

PORT = 18500
READY_TIMEOUT_S = 90.0
POLL_S = 0.1


#: Strikes, and returns when.
Blow = Callable[[Victim], float]


@dataclass(frozen=True)
class Fault:
    kind: str
    victim: Victim
    at: float  # wall clock, of the blow


@dataclass(frozen=True)
class Rig:
    client: RestClient
    layout: Layout
    plan: StackPlan

    def strike(self, kind: str, victim: Victim) -> Fault:
        return Fault(kind, victim, self.blows()[kind](victim))

    def blows(self) -> dict[str, Blow]:
        """Return the action of each kind of fault, by its name."""
        return {
            "rank_killed": lambda victim: strikes.kill_rank(victim.pid),
            "rank_stopped": lambda victim: strikes.stop_rank(victim.pid),
            "agent_killed": lambda victim: strikes.kill_agent(self.layout, victim.node),
            "node_killed": lambda victim: strikes.kill_node(self.layout, victim.node),
        }

    def heal(self) -> None:
        """Start again whatever was killed: agents, the coordinator. Harmless where nothing was."""
        bring_up(self.layout, self.plan, _quietly)


@contextmanager
def rig(agents: int) -> Iterator[Rig]:
    """Start a stack with one slot for each agent, so that a node is a rank."""
    with tempfile.TemporaryDirectory(prefix="paceline-faults-") as folder:
        layout, plan = Layout.at(Path(folder)), StackPlan(port=PORT, agents=agents)
        try:
            with bring_up(layout, plan, say).client() as client:
                yield Rig(client, layout, plan)
        finally:
            take_down(layout, say)


@dataclass(frozen=True)
class NetworkedRig(Rig):
    """A stack whose agents have network namespaces of their own; the coordinator is outside of them."""

    network: Network
    started: dict[str, subprocess.Popen[bytes]]

    def blows(self) -> dict[str, Blow]:
        cuts: dict[str, Blow] = {
            "namespace_killed": lambda victim: self.kill_namespace(victim.node),
            "link_cut": lambda victim: self.network.cut(victim.node),
        }
        return super().blows() | cuts

    def heal(self) -> None:
        touched = [name for name in self.plan.agent_names if self._heal(name)]
        self._await_word(touched, time.time())

    def _heal(self, name: str) -> bool:
        """Whether there was anything to heal."""
        if not self.network.has(name):
            self.network.add(name)
        mended = self.network.mend(name)
        if name in self.started and self.started[name].poll() is None:
            return mended
        self.started[name] = self._agent(name)
        return True

    def kill_namespace(self, name: str) -> float:
        """Kill everything in a namespace, and remove it: the kernel still closes the connections of dead processes, as for any killed
        process."""
        at = strikes.kill_node(self.layout, name)
        self.started.pop(name).wait(READY_TIMEOUT_S)
        self.network.remove(name)
        return at

    def end(self) -> None:
        take_down(self.layout, say)
        for process in self.started.values():
            process.wait(READY_TIMEOUT_S)

    def _agent(self, name: str) -> subprocess.Popen[bytes]:
        url = f"http://{self.network.outside}:{self.plan.port}"
        options = ["--server", url, "--name", name, "--slots", "1", "--data", str(self.layout.agent(name)), "--insecure-http"]
        command = [sys.executable, "-m", "paceline.cluster.agent.main", *options, "--checkpoints", str(self.layout.checkpoints)]
        environment = child_environment(**{MARK: self.layout.mark, "PYTHONUNBUFFERED": "1"})
        if not (self.layout.agent(name) / "credential.json").exists():
            environment[JOIN_TOKEN] = self.client.create("/cluster/nodes", {})["token"]
        inside = self.network.inside(name, command)
        with self.layout.log(name).open("ab") as log:
            return subprocess.Popen(
                inside, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _await_word(self, names: Sequence[str], since: float) -> None:
        """Wait until the coordinator has heard of each agent: a node that is not known to be back cannot follow its gang."""
        _until(f"{', '.join(names)} ready; the logs are in {self.layout.run}", lambda: set(names) <= self._heard_of(since))

    def _heard_of(self, since: float) -> set[str]:
        nodes = [parsed(document, Node) for document in self.client.pages("/cluster/nodes")]
        heard = [node for node in nodes if node.heartbeat_age_seconds is not None and time.time() - node.heartbeat_age_seconds > since]
        return {node.name for node in heard if node.state == "ready"}


@contextmanager
def networked_rig(agents: int) -> Iterator[NetworkedRig]:
    with tempfile.TemporaryDirectory(prefix="paceline-faults-") as folder, Network() as network:
        layout, plan = Layout.at(Path(folder)), StackPlan(port=free_port(PORT), agents=agents)
        _open_coordinator(layout, plan, network.outside)
        with bring_up(layout, StackPlan(port=plan.port, agents=0), say).client() as client:
            _until(f"the coordinator ready; its log is in {layout.run}", client.ready)
            found = NetworkedRig(client, layout, plan, network, {})
            try:
                found.heal()
                yield found
            finally:
                found.end()


def _open_coordinator(layout: Layout, plan: StackPlan, address: str) -> None:
    """One that answers agents on other addresses; `bring_up` finds it running."""
    arguments = ["-m", "uvicorn", "paceline.api.main:app", "--host", "0.0.0.0", "--port", str(plan.port), "--no-access-log"]
    environment = {"PACELINE_DATA": str(layout.data), "PACELINE_ALLOWED_HOSTS": address, "PACELINE_INSECURE_PUBLIC": "true"}
    start(layout, BackgroundProgram(COORDINATOR, arguments, environment))
    layout.server.write_text(f"http://127.0.0.1:{plan.port}")


def _until(what: str, there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {READY_TIMEOUT_S:g} s: {what}")
        time.sleep(POLL_S)


def end_in_order() -> None:
    """A SIGTERM unwinds like Ctrl-C: what was started is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))


def _quietly(_: str) -> None:
    return
