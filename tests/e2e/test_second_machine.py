"""docs/second_machine.md, followed to the letter on two machines that share a network and one file system, and whose host names are loopback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from paceline.cluster.agent.disks import disk_of
from scripts.faults.network import Network
from tests.e2e.netns import require_namespaces
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PAGE = ROOT / "docs" / "second_machine.md"
ADDRESS_OF_THE_PAGE, CABLE = "10.0.0.1", "eth0"
JOIN_SECONDS, JOB_SECONDS, END_SECONDS = 120.0, 150.0, 30.0
NETNS = Path("/etc/netns")
#: What `sh` does before a command of a machine: the machine has an identity and a disk of its own, as long as the command and its children live.
OF_ITS_OWN = 'mount --bind "$1" /proc/sys/kernel/random/boot_id; mount -t tmpfs own "$2"; shift 2; exec "$@"'
ALL_REDUCE = """
import socket
import torch, torch.distributed as dist
assert socket.gethostbyname(socket.gethostname()).startswith("127."), "the host name is to be loopback, as on Debian"
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("sum", int(total.item()), "of", dist.get_world_size())
dist.destroy_process_group()
"""


def line_of_the_page(start: str) -> list[str]:
    """The first command on the page that starts so."""
    lines = (line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    "))
    return shlex.split(next(line for line in lines if line.startswith(start)))


def block_of_the_page(start: str) -> str:
    """The first block on the page that starts so."""
    blocks = re.findall(r"(?:^    .*\n)+", PAGE.read_text(), re.MULTILINE)
    return next(textwrap.dedent(block) for block in blocks if block.startswith(f"    {start}"))


class Machines(Stack):
    """The stack of machine 1, and the agent of machine 2. Each has a folder, a network namespace and a hosts file of its own."""

    def __init__(self, folder: Path, network: Network) -> None:
        super().__init__(folder / "one" / ".paceline")
        self.folder, self.network = folder, network
        #: A path that is another disk on each machine, and one that is the same shared file system on both.
        self.own_disk, self.shared_mount = folder / "scratch", folder / "mnt"
        self.worker: subprocess.Popen[bytes] | None = None

    def open(self) -> dict[str, Any]:
        """The first command of the page, on a port that is free here."""
        words = line_of_the_page("paceline up --host")
        address = self.network.address("one", CABLE)
        words = [address if word == ADDRESS_OF_THE_PAGE else word for word in words]
        done = self.paceline(*words[1:], "--agents", "1", "--port", str(free_port()), "--json")
        assert done.returncode == 0, done.stderr + self.logs()
        document: dict[str, Any] = json.loads(done.stdout)
        self.server = document["public_url"]
        key = json.loads((self.data / "credentials.json").read_text())["api_key"]
        self._client = httpx.Client(base_url=f"{self.server}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=10)
        return document

    def join(self, command: str) -> None:
        """Run on machine 2 the line that was printed on machine 1."""
        log = (self.folder / "two" / "worker.log").open("wb")
        with log:
            self.worker = subprocess.Popen(
                self._inside("two", command), cwd=self.folder / "two", env=self._environment(), stdout=log, stderr=log
            )

    def paceline(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        command = self._inside("one", shlex.join(["paceline", *arguments]))
        return subprocess.run(command, cwd=self.data.parent, env=self._environment(), capture_output=True, text=True, timeout=timeout)

    def node_states(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.get("/cluster/nodes")["items"]}

    def output(self, job_id: str) -> list[str]:
        return [line["text"] for line in self.get(f"/training/jobs/{job_id}/logs", limit=1000)["items"]]

    def logs(self) -> str:
        worker = self.folder / "two" / "worker.log"
        return super().logs() + (worker.read_text()[-3000:] if worker.exists() else "")

    def end(self) -> None:
        if self.worker is not None:
            self.worker.terminate()
            try:
                self.worker.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self.worker.kill()
                self.worker.wait()
        self.down()
        for machine in self.network.nodes:
            self.network.kill(machine)

    def _inside(self, machine: str, command: str) -> list[str]:
        program, *arguments = shlex.split(command)
        assert program == "paceline"
        apart = ["sh", "-ec", OF_ITS_OWN, "sh", str(self.folder / f"{machine}.boot_id"), str(self.own_disk)]
        return self.network.inside(machine, [*apart, sys.executable, "-m", "paceline.cli.main", *arguments])

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
        return {**kept, "PYTHONPATH": str(ROOT), "HOME": str(self.folder), "NO_COLOR": "1"}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Nothing runs yet. `ip netns exec` puts what lies in /etc/netns/NAME over /etc."""
    require_namespaces()
    folder = tmp_path_factory.mktemp("two-machines")
    with Network((CABLE,)) as network:
        found = Machines(folder, network)
        hosts: list[Path] = []
        try:
            for machine in ("one", "two"):
                hosts.append(NETNS / network.namespace(machine) / "hosts")
                hosts[-1].parent.mkdir(parents=True)
                hosts[-1].write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
                network.add(machine)
                (folder / machine).mkdir()
                (folder / f"{machine}.boot_id").write_text(f"{uuid.uuid4()}\n")
            found.own_disk.mkdir()
            found.shared_mount.mkdir()
            subprocess.run(
                ["mount", "-t", "ramfs", "shared", found.shared_mount], check=True
            )  # to agents a file system that others may see
            yield found
        finally:
            found.end()
            if found.shared_mount.is_mount():
                subprocess.run(["umount", "--lazy", found.shared_mount], check=True)
            for path in hosts:
                path.unlink(missing_ok=True)
                path.parent.rmdir()
            with contextlib.suppress(OSError):  # others' are in it, or it was not made
                NETNS.rmdir()


@pytest.fixture(scope="module")
def joined(machines: Machines) -> Machines:
    """The page up to its jobs."""
    opened = machines.open()
    address = machines.network.address("one", CABLE)
    assert opened["login_link"].startswith(f"http://{address}:")
    added = machines.paceline(*line_of_the_page("paceline nodes add")[1:], "--json")
    assert added.returncode == 0, added.stderr
    invitation = json.loads(added.stdout)
    assert invitation["warning"] is None
    assert shlex.split(invitation["command"])[:2] == line_of_the_page("paceline worker")[:2]
    machines.join(invitation["command"])
    try:
        wait_until("machine 2", lambda: list(machines.node_states().values()) == ["ready"] * 2, JOIN_SECONDS)
    except TimeoutError as error:
        raise AssertionError(f"{error}: {machines.node_states()}\n{machines.logs()}") from error
    return machines


def completed(machines: Machines, job: dict[str, Any] | str) -> dict[str, Any]:
    """The job of this spec, or with this id, at its end: a rank of it on each machine."""
    job_id = job if isinstance(job, str) else machines.submit(job)
    done = machines.wait_for_state(job_id, "completed", "failed", timeout=JOB_SECONDS)
    assert done["state"] == "completed", f"{done['failure']}\n" + "\n".join(machines.output(done["id"]))
    assert len({rank["node_name"] for rank in done["ranks"]}) == 2
    return done


#: As on the page. One of the machines has room for both ranks.
APART = yaml.safe_load(next(line for line in PAGE.read_text().splitlines() if line.startswith("    resources:")))["resources"]


def test_jobs_for_two_machines_are_on_both() -> None:
    """`nodes: 2` alone is on one where that has room: nothing between the machines was tried, and all looked well."""
    example = yaml.safe_load((ROOT / "examples" / "gpt_object_store.yaml").read_text())
    assert APART["spread"] is True
    assert example["resources"]["spread"] is True


def own_code(folder: Path, **more: Any) -> dict[str, Any]:
    return {"name": "both", "resources": APART, "environment": {"working_directory": str(folder)}, **more}


def test_nodes_are_met_at_the_addresses_of_their_machines(joined: Machines) -> None:
    found = {node["address"] for node in joined.get("/cluster/nodes")["items"]}
    assert found == {joined.network.address(machine, CABLE) for machine in ("one", "two")}


def submitted(machines: Machines, spec: str) -> str:
    """Type the page's `paceline submit` on machine 1, in the folder of its `paceline up`, which both see. Returns the job's id."""
    (command,) = re.findall(r"`(paceline submit both\.yaml)`", PAGE.read_text())
    (machines.data.parent / command.split()[-1]).write_text(spec)
    done = machines.paceline(*command.split()[1:], "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def test_a_script_on_both_machines(joined: Machines) -> None:
    (joined.data.parent / "train.py").write_text(ALL_REDUCE)
    job = completed(joined, submitted(joined, block_of_the_page("name: both")))
    assert wait_until("both lines", lambda: (lines := joined.output(job["id"])).count("sum 3 of 2") == 2 and lines, END_SECONDS)


def test_a_built_in_model_on_both_machines(joined: Machines) -> None:
    named = yaml.safe_load(block_of_the_page("checkpoint:"))["checkpoint"]
    assert named == {"directory": "/mnt/shared/runs"}
    spec = tiny_gpt("both", 20, resources=APART, checkpoint={"every_steps": 10} | named | {"directory": str(joined.shared_mount / "runs")})
    job = completed(joined, submitted(joined, yaml.safe_dump(spec)))
    assert job["progress"]["step"] == 20
    assert list((joined.shared_mount / "runs").glob("**/manifest.json"))


def test_an_entrypoint_on_both_machines(joined: Machines) -> None:
    length = {"steps": 20, "global_batch_size": 32, "eval_every_steps": None}
    checkpoint = {"every_steps": 10, "directory": str(joined.shared_mount / "digits")}
    completed(joined, own_code(ROOT / "examples", entrypoint="digits_task:make_task", training=length, checkpoint=checkpoint))


def test_a_loop_of_ones_own_on_both_machines(joined: Machines) -> None:
    script = {"path": "own_loop.py", "args": ["--batch-size", "32", "--steps", "10"]}
    job = completed(joined, own_code(ROOT / "examples", script=script))
    wait_until("its steps", lambda: len(joined.raw_curve(job["id"])) == 10, END_SECONDS)


def test_checkpoints_without_a_shared_folder_are_refused_at_once(joined: Machines) -> None:
    if disk_of(joined.folder) is None:
        pytest.skip("temporary files are on no disk of this machine, and may be shared")
    answer = joined.client.post("/training/jobs", json=tiny_gpt("apart", 20, resources=APART))
    assert (answer.status_code, answer.json()["code"]) == (422, "no_shared_folder"), answer.text
    assert "set checkpoint.directory" in answer.json()["detail"]


def test_a_named_folder_that_is_another_one_on_each_machine_is_refused_before_anything_starts(joined: Machines) -> None:
    """It was a warning, and the job failed once its ranks ran."""
    before = len(joined.get("/training/jobs")["items"])
    spec = tiny_gpt("apart", 20, resources=APART, checkpoint={"directory": str(joined.own_disk / "runs")})
    answer = joined.client.post("/training/jobs", json=spec)
    assert (answer.status_code, answer.json()["code"]) == (422, "no_shared_folder"), answer.text
    assert all(way_out in answer.json()["detail"] for way_out in ("mount one file system there", "s3://BUCKET/PREFIX", "checkpoint.shared"))
    assert len(joined.get("/training/jobs")["items"]) == before


def test_a_folder_behind_a_link_is_taken_where_the_job_says_that_it_is_one(joined: Machines, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(joined.shared_mount)
    checkpoint = {"every_steps": 10, "directory": str(tmp_path / "link" / "linked")}
    assert joined.client.post("/training/jobs", json=tiny_gpt("link", 20, resources=APART, checkpoint=checkpoint)).status_code == 422
    job = completed(joined, joined.submit(tiny_gpt("link", 20, resources=APART, checkpoint=checkpoint | {"shared": True})))
    assert job["progress"]["step"] == 20
    assert list((joined.shared_mount / "linked").glob("**/manifest.json"))
