"""An agent's whole life against a coordinator that speaks the real protocol: joining, ranks, ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.disks import disk_of, own_mounts, shared_mounts
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.join import Credential
from paceline.cluster.agent.loop import SHORTEST_REPORT_SECONDS, Agent, AgentContext
from paceline.cluster.agent.main import LEFT_RANKS
from paceline.cluster.agent.offer import NodeOffer
from paceline.cluster.agent.ranks.ranks import RankPhase
from paceline.cluster.agent.settings import read_settings
from paceline.cluster.agent.vitals import RankHeartbeats
from paceline.cluster.protocol import ConnectionRefused, Desired, FromAgent, Inventory, Observed
from paceline.cluster.states import RankState
from paceline.distributed.store_server import StoreServer
from paceline.monitoring.host import HostSampler
from paceline.training.link import RankOrder, Stalled
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import AgentProcess, assignment, script_job, training_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.ports import free_port
from tests.waiting import until

SPAWNER_TIMEOUT_SECONDS = 40.0


async def test_joins_runs_a_rank_to_completion_and_forgets_it(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    await coordinator.desire(assignment("job", spec=training_job(steps=5)))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.drained)
    rank = coordinator.rank("job")
    assert rank is not None
    assert (rank.state, rank.outcome, rank.exit_code, rank.signal, rank.step) == (RankState.EXITED, "completed", 0, None, 5)
    received = coordinator.of("job")
    assert [record.step for record in received.streams["metrics"]] == [1, 2, 3, 4, 5]
    assert received.text == [f"step {step}" for step in range(1, 6)]
    await coordinator.desire()
    await coordinator.until(lambda c: c.rank("job") is None)
    assert await agent.end() == 0
    assert agent.processes() == []


async def test_a_spec_of_another_version_fails_its_own_job_only(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    unreadable = assignment("odd", world("odd", slot=1), spec=training_job() | {"from_tomorrow": 1})
    await coordinator.desire(unreadable, assignment("job", spec=training_job(steps=5)))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.drained)
    await coordinator.until(lambda c: (rank := c.rank("odd")) and rank.drained)
    rank = coordinator.rank("odd")
    assert rank is not None
    assert rank.failure is not None
    assert "cannot start: the Paceline on this node cannot read the job's spec: `from_tomorrow` is not a field" in rank.failure.message
    assert (rank.outcome, coordinator.rank("job").outcome, len(coordinator.hellos)) == ("failed", "completed", 1)  # type: ignore[union-attr]
    await coordinator.desire()
    await coordinator.until(lambda c: c.rank("odd") is None)
    await agent.end()


async def test_hello_says_which_folder_the_checkpoints_are_in(agent: AgentProcess, coordinator: Coordinator) -> None:
    """Made before it is told of, as a rank would make it: a folder that appears later would be another one by then."""
    umask = os.umask(0o027)
    try:
        agent.start()
    finally:
        os.umask(umask)
    await coordinator.until(lambda c: c.hellos)
    folder = agent.data.parent / "checkpoints"
    assert folder.stat().st_mode & 0o777 == 0o750
    assert coordinator.hellos[0].inventory.checkpoint_disk == disk_of(folder)
    assert coordinator.hellos[0].inventory.shared_mounts == shared_mounts()
    assert coordinator.hellos[0].inventory.own_mounts == own_mounts()
    await agent.end()


async def test_hello_offers_the_slots_and_a_store_that_keeps_its_port(agent: AgentProcess, coordinator: Coordinator) -> None:
    first = free_port()
    agent.start("--label", "zone=a", "--port-range", f"{first}-{first + 9}")
    await coordinator.until(lambda c: c.hellos and c.heartbeats)
    hello = coordinator.hellos[0]
    assert (hello.inventory.slots, hello.inventory.device, hello.inventory.labels) == (2, "cpu", {"zone": "a"})
    assert hello.address == "127.0.0.1"
    assert hello.store_port in range(first, first + 10)
    assert hello.inventory.versions["torch"][0].isdigit()
    assert coordinator.heartbeats[0].gpu_error == "no GPU"
    assert coordinator.heartbeats[0].host.memory_total_bytes > 0
    await agent.end()
    agent.start()
    await coordinator.until(lambda c: len(c.hellos) == 2)
    assert coordinator.hellos[1].store_port == hello.store_port
    await agent.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_leaving_ends_ranks_and_spawner(agent: AgentProcess, coordinator: Coordinator, number: signal.Signals) -> None:
    agent.start()
    await coordinator.desire(assignment("job", world("job", 0, 2), world("job", 1, 2), spec=training_job(children=1)))
    await coordinator.until(lambda c: len(c.of("job", 0).text) > 2 and len(c.of("job", 1).text) > 2)
    assert await agent.end(number) == 0
    assert agent.processes() == []
    assert coordinator.rank("job") is not None
    assert coordinator.rank("job").signal == "SIGTERM"  # type: ignore[union-attr]


async def test_leaving_with_files_that_are_not_taken_now_is_no_failure(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    source = "import os, time; open(os.environ['PACELINE_ARTIFACTS'] + '/model.pt', 'w').write('weights'); print('left', flush=True); time.sleep(600)"
    place = world("job", store_port=coordinator.hellos[0].store_port)
    await coordinator.desire(assignment("job", place, spec=script_job(tmp_path / "leave.py", source)))
    await coordinator.until(lambda c: "left" in c.of("job").text)
    assert await agent.end() == 0
    assert (agent.data / "jobs/job/files/g1.rank0/model.pt").exists()


async def test_a_node_told_to_leave_does(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job"))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.state == RankState.RUNNING)
    await coordinator.desire(leave=True)
    assert await agent.exited() == 0
    assert agent.processes() == []


async def test_a_removed_node_ends_its_ranks_and_says_why(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job"))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.state == RankState.RUNNING)
    await coordinator.stop()
    coordinator.refusal = ConnectionRefused(code="removed", message="node removed by admin", final=True)
    await coordinator.start()
    assert await agent.exited() == 1
    assert "node removed by admin" in agent.log
    assert agent.processes() == []


@pytest.mark.parametrize("how", ["told to leave", "refused"])
async def test_a_node_that_was_removed_joins_anew_with_a_new_token(agent: AgentProcess, coordinator: Coordinator, how: str) -> None:
    """The credential that nobody takes any more was kept, and went before each new token: in a pod with a volume the agent never came back."""
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    if how == "told to leave":
        await coordinator.desire(leave=True)
        assert await agent.exited() == 0
        await coordinator.desire()
    else:
        await agent.end()
        coordinator.refusal = ConnectionRefused(code="removed", message="node removed by admin", final=True)
        agent.start(token="")
        assert await agent.exited() == 1
        coordinator.refusal = None
    seen = len(coordinator.hellos)
    coordinator.tokens.add("another")
    agent.start(token="another")
    await coordinator.until(lambda c: len(c.hellos) > seen)
    assert coordinator.tokens == set()
    await agent.end()


async def test_a_node_that_another_agent_speaks_for_keeps_its_credential(agent: AgentProcess, coordinator: Coordinator) -> None:
    coordinator.refusal = ConnectionRefused(code="superseded", message="another agent has connected", final=True)
    agent.start()
    assert await agent.exited() == 1
    assert (agent.data / "credential.json").exists()


async def test_hangup_leaves_the_ranks_to_the_next_agent(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job"))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.state == RankState.RUNNING)
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    assert await agent.end(signal.SIGHUP) == LEFT_RANKS
    assert pid in {process.pid for process in agent.processes()}
    agent.start()
    await coordinator.until(lambda c: len(c.hellos) == 2 and (rank := c.rank("job")) and rank.pid == pid)
    await agent.end()


class StandingStill:
    """A connection that stands, on which the first message does not get through in time."""

    is_connected = True

    def __init__(self) -> None:
        self.tries = 0

    async def send(self, _: FromAgent) -> bool:
        self.tries += 1
        return self.tries > 1


def make_agent(tmp_path: Path, store: StoreServer, vitals: RankHeartbeats) -> Agent:
    """An agent in this process, which is not connected and has no ranks."""
    folder = AgentFolder(tmp_path)
    folder.create()
    settings = read_settings(["--server", "http://127.0.0.1:9", "--data", str(tmp_path)])
    credential = Credential(server=settings.server, node_id="node-1", credential="lasting")
    inventory = Inventory(slots=1, device="cpu", cpu_count=1, memory_bytes=1, hostname="host", platform="linux")
    offer = NodeOffer((), slots=1, locks=CardLocks(tmp_path), sampler=None, gpu_error="no GPU", hides_cards=False)
    return Agent(settings, folder, credential, AgentContext(offer, inventory, "127.0.0.1", None, 1), store, vitals)


async def test_heartbeats_go_on_after_one_that_was_not_sent_in_time(tmp_path: Path) -> None:
    vitals = RankHeartbeats(HostSampler(tmp_path, 0.0), None, "no GPU")
    agent = make_agent(tmp_path, StoreServer(), vitals)
    channel = StandingStill()
    agent._channel, agent._heartbeat_seconds = channel, 0.01  # type: ignore[assignment]
    agent._welcomed.set()
    beating = asyncio.create_task(agent._send_heartbeats())
    await until(lambda: channel.tries >= 3, "the heartbeats after it")
    beating.cancel()
    vitals.close()


class ReportsOnly:
    """A connection that keeps what is sent."""

    is_connected = True

    def __init__(self) -> None:
        self.reports: list[Observed] = []

    async def send(self, message: FromAgent) -> bool:
        if isinstance(message, Observed):
            self.reports.append(message)
        return True


async def test_a_rank_that_stalls_in_ever_new_ways_does_not_have_its_node_report_as_often(tmp_path: Path) -> None:
    """Each was a transaction of the coordinator's, and a turn of its scheduler."""
    vitals = RankHeartbeats(HostSampler(tmp_path, 0.0), None, "no GPU")
    agent = make_agent(tmp_path, StoreServer(), vitals)
    channel = ReportsOnly()
    agent._channel = channel  # type: ignore[assignment]
    place = world("job")
    table = agent._ranks._table
    key = table.add(RankOrder(spec=StoredSpec({}), world=place, folder=str(tmp_path), agent_socket="")).key
    agent._desired = Desired(revision=1, assignments=(assignment("job", place),))
    await agent._report()
    began = time.monotonic()
    for number in range(50):
        table.on_message(key, Stalled(step=1, phase="x", seconds=float(number), limit=1.0, patience=9.0, since=1.0), 1.0)
        await agent._report()
    assert len(channel.reports) <= 2 + (time.monotonic() - began) / SHORTEST_REPORT_SECONDS
    sent = len(channel.reports)
    table.change(key, phase=RankPhase.ALIVE, pid=7, joined=True)  # a change of state
    await agent._report()
    assert len(channel.reports) == sent + 1
    assert channel.reports[-1].assignments[0].ranks[0].stall is not None
    vitals.close()


class BusyStore(StoreServer):
    """A store whose first opening of job y's namespace takes until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.open: set[tuple[str, int]] = set()

    async def admit(self, job_id: str, generation: int, token: str, *, at_boundary: bool = False) -> None:
        if job_id == "y" and not self.reached.is_set():
            self.reached.set()
            await self.go_on.wait()
        await super().admit(job_id, generation, token, at_boundary=at_boundary)
        self.open.add((job_id, generation))

    async def retire(self, job_id: str, generation: int) -> None:
        await super().retire(job_id, generation)
        self.open.discard((job_id, generation))


async def test_the_store_of_a_new_generation_stays_open_while_the_one_before_is_yet_to_be_served(tmp_path: Path) -> None:
    """It was ended by the one that had waited: ranks that had met there were told that their generation was over."""
    vitals, store = RankHeartbeats(HostSampler(tmp_path, 0.0), None, "no GPU"), BusyStore()
    agent = make_agent(tmp_path, store, vitals)
    y = assignment("y", action="stop")
    agent._desired = Desired(revision=1, assignments=(assignment("x", action="stop"), y))
    reconciling = asyncio.create_task(agent._serve_stores())
    await store.reached.wait()
    newer = Desired(revision=2, assignments=(assignment("x", world("x", generation=2), action="stop"), y))
    heard = asyncio.create_task(agent.on_desired(newer))
    for _ in range(20):  # turns of the event loop, as many as the newer one needs where nothing holds it
        await asyncio.sleep(0)
    store.go_on.set()
    await asyncio.gather(reconciling, heard)
    assert ("x", 2) in store.open
    vitals.close()


async def test_a_data_folder_too_deep_for_sockets_works(coordinator: Coordinator, tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path / ("deep-" * 20) / "agent", coordinator.url)
    agent.data.parent.mkdir()
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job(steps=3)))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.outcome == "completed")
    sockets = Path((agent.data / "sockets_folder").read_text())
    assert sockets.stat().st_mode & 0o777 == 0o700
    await agent.end()
    assert agent.processes() == []
    assert list(sockets.iterdir()) == []
    sockets.rmdir()


async def test_leaving_while_the_spawner_is_still_starting_leaves_nothing(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start("--trainer", "paceline.training.main")  # importing torch takes a second or two
    await until(lambda: len(agent.processes()) >= 2, "the start of the spawner", seconds=SPAWNER_TIMEOUT_SECONDS)
    assert coordinator.hellos == []  # a node is not in before it can fork ranks at once
    assert await agent.end() == 0
    assert agent.processes() == []


async def test_damaged_and_stray_files_among_the_jobs_are_set_aside_and_the_agent_serves(
    agent: AgentProcess, coordinator: Coordinator
) -> None:
    jobs = agent.data / "jobs"
    damaged = jobs / "old" / "g1" / "rank0" / "order.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b'{"folder": "\xff"}')
    (jobs / "stray").write_text("no folder of a job")
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job(steps=1)))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.outcome == "completed")
    assert damaged.with_name("order.json.damaged").exists()
    assert agent.log.count("order.json is damaged and set aside") == 1
    await agent.end()


REMOVES_WHERE_IT_STARTS = "import os, shutil; shutil.rmtree(os.getcwd())"
#: Where Paceline keeps what it knows of a rank; a script may write there and has no reason to.
TO_THE_RANKS_FOLDER = "import os; os.chdir(os.path.dirname(os.environ['TORCHELASTIC_ERROR_FILE']))\n"
ODD_ENDS = {
    # The agent, and the reader of the rank's files, may write something there meanwhile.
    "removes its folder": "import shutil; here = os.getcwd()\nwhile os.path.exists(here): shutil.rmtree(here, ignore_errors=True)",
    "makes its folder read-only": "import os; os.chmod('.', 0o500)",
    "leaves a folder where its end is to be told": "import os; os.mkdir('exit.json')",
    "leaves a folder where its end was written first": "import os; [os.mkdir(f'exit.json.{pid}.tmp') for pid in os.listdir('/proc') if pid.isdigit()]",
    "leaves a pipe for its last word": "import os; os.mkfifo('result.json')",
    "leaves a last word that is no text": "open('result.json', 'wb').write(b'{\"outcome\": \"\\xff\"}')",
    "makes a link of its output": "import os; os.remove('output.log'); os.symlink('/etc/passwd', 'output.log')",
}


async def test_whatever_a_rank_does_to_its_folder_its_end_is_told_and_the_next_one_trains(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    port = coordinator.hellos[0].store_port
    jobs = [
        assignment(f"odd-{n}", world(f"odd-{n}", store_port=port), spec=script_job(tmp_path / f"{n}.py", source))
        for n, source in enumerate([REMOVES_WHERE_IT_STARTS, *(TO_THE_RANKS_FOLDER + source for source in ODD_ENDS.values())])
    ]
    for job in jobs:
        await coordinator.desire(job, assignment("beside", world("beside", 0, slot=1)))
        await coordinator.until(lambda c, job=job: (rank := c.rank(job.job_id)) and rank.drained and rank.exit_code == 0)  # type: ignore[misc]
    passwords = Path("/etc/passwd").read_text().splitlines()
    assert not set(passwords) & {line for job in jobs for line in coordinator.of(job.job_id).text}
    seen = len(coordinator.of("beside").text)
    await coordinator.until(lambda c: len(c.of("beside").text) > seen)
    await agent.end()
