"""Nodes that come and go by themselves: the autoscaler over a week of jobs, and how soon a Slurm job or a host with SSH is a node.

    python -m scripts.bench.cluster [autoscaler] [slurm] [ssh] [--json FILE]

autoscaler_slot_hours         paid for over a week of a made-up trace, beside nodes that are always on and beside an oracle
autoscaler_wait_s             how long its jobs waited
slurm_node_ready_s            from sbatch to a node that is ready, beside a plain job's time to a running script
slurm_node_own_s              of that, from the first line of the node's script on: without what Slurm takes, which varies by a second
ssh_node_ready_s              from the launch on a host that has the packages to a node that is ready, beside `ssh HOST paceline worker` typed there
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path

import httpx

from paceline.cluster.autoscaling.facts import PoolFacts
from paceline.cluster.autoscaling.replay import Replay, ReplayResult, replay_always_on, replay_oracle
from paceline.cluster.autoscaling.trace import week
from paceline.cluster.provisioners.provisioner import Provisioner, ProvisionerContext, WantedNode
from paceline.cluster.provisioners.settings import SshSettings, ssh_node_name
from paceline.cluster.provisioners.slurm import SlurmProvisioner
from paceline.cluster.provisioners.slurm_settings import SlurmSettings
from paceline.cluster.provisioners.ssh.provisioner import SshProvisioner
from scripts.bench.edges.load.coordinator import Coordinator, coordinator, free_port
from scripts.bench.figures import Figure, report, summarize
from scripts.slurm_cluster import SlurmCluster, missing_programs
from scripts.steps import ROOT
from tests.sshd import SSHD, SshServer, ssh_server

POOL = PoolFacts("gpu", slots=8, max_nodes=16, launch_seconds=120.0)
SEEDS = (1, 2, 3)
NODES, READY_SECONDS = 5, 120.0
SSH_HOST, CTRL_C = "127.0.0.2", b"\x03"


def measure_autoscaler() -> list[Figure]:
    """Replay a week under each policy, and print what it cost."""
    policies: dict[str, Callable[[int], ReplayResult]] = {
        "always on": lambda seed: replay_always_on(POOL, week(seed)),
        "ends unknown": lambda seed: Replay(POOL, week(seed), known_ends=0.0).run(),
        "half known": lambda seed: Replay(POOL, week(seed), known_ends=0.5).run(),
        "autoscaler": lambda seed: Replay(POOL, week(seed)).run(),
        "oracle": lambda seed: replay_oracle(POOL, week(seed)),
    }
    results = {name: [run(seed) for seed in SEEDS] for name, run in policies.items()}
    print(f"a week of {', '.join(str(len(week(seed))) for seed in SEEDS)} jobs; at most {POOL.max_nodes} nodes of {POOL.slots} slots")
    print(f"{'policy':12} {'slot-hours':>11} {'in use':>7} {'wait: median':>13} {'mean':>7} {'p95':>7} {'launches':>9}")
    for name, runs in results.items():
        paid, used = sum(run.slot_hours for run in runs), sum(run.used_slot_hours for run in runs)
        columns = " ".join(
            f"{sum(getattr(run, which) for run in runs) / len(runs):>{width}.0f}"
            for which, width in (("median_wait", 13), ("mean_wait", 7), ("p95_wait", 7))
        )
        print(f"{name:12} {paid / len(runs):>11,.0f} {used / paid:>7.0%} {columns} {sum(run.launches for run in runs) // len(runs):>9}")
    on, scaled, oracle = (results[name] for name in ("always on", "autoscaler", "oracle"))
    share = sum(run.slot_hours for run in scaled) / sum(run.slot_hours for run in on)
    over = sum(run.slot_hours for run in scaled) / sum(run.slot_hours for run in oracle)
    cost = f"{share:.0%} of always on, {over:.2f} of an oracle that launches at once"
    waits = [wait for run in scaled for wait in run.waits]
    without = sum(run.mean_wait for run in on) / len(on)
    return [
        summarize("autoscaler_slot_hours", "h", [run.slot_hours for run in scaled], cost),
        summarize("autoscaler_wait_s", "s", waits, f"mean {sum(waits) / len(waits):.0f}; always on {without:.0f}"),
    ]


def measure_slurm() -> list[Figure]:
    """Launch nodes in a real Slurm one by one, beside plain batch jobs."""
    if missing := missing_programs():
        print(f"slurm: skipped, there is no {', '.join(missing)}: apt-get install slurm-wlm munge", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        slurm = SlurmCluster(folder / "slurm", free_port(), nodes=NODES)
        (folder / "slurm").mkdir()
        slurm.start()
        os.environ["SLURM_CONF"] = slurm.environment["SLURM_CONF"]
        try:
            plain = [_plain_job(slurm, folder / f"started-{number}") for number in range(NODES)]
            ready, own = asyncio.run(_nodes(folder))
        finally:
            slurm.stop()
    beside = sorted(plain)[len(plain) // 2]
    return [
        summarize("slurm_node_ready_s", "s", ready, f"a plain job runs after {beside:.2f} s; goal: 2 s more than that"),
        summarize("slurm_node_own_s", "s", own, "since the first line of its script; goal: 2 s"),
    ]


def _plain_job(slurm: SlurmCluster, mark: Path) -> float:
    began = time.monotonic()
    slurm.command("sbatch", "--output=/dev/null", "--wrap", f"touch {mark}")
    while not mark.exists():
        if time.monotonic() - began > READY_SECONDS:
            raise TimeoutError(f"a plain batch job did not start within {READY_SECONDS:g} s")
        time.sleep(0.01)
    return time.monotonic() - began


async def _nodes(folder: Path) -> tuple[list[float], list[float]]:
    """The seconds until each node was ready, and those of them after Slurm had started its script."""
    program = folder / "paceline"
    program.write_text(f'#!/bin/bash\ncd {ROOT} && exec {sys.executable} -m paceline.cli.main "$@"\n')
    program.chmod(0o755)
    settings = SlurmSettings(
        paceline=str(program),
        directory=str(folder / "nodes"),
        time="10",
        kill_wait=20,
        setup=[f"date +%s.%N > {folder}/began-$SLURM_JOB_NAME"],
    )
    provisioner = SlurmProvisioner(settings, ProvisionerContext(folder, lambda _: None))
    async with coordinator(0) as target, target.client() as client:
        ready, own = [], []
        for number in range(NODES):
            name, launched = f"bench-{number}", time.time()
            ready.append(await _node(target, client, provisioner, name))
            own.append(launched + ready[-1] - float((folder / f"began-{name}").read_text()))
        return ready, own


async def _node(target: Coordinator, client: httpx.AsyncClient, provisioner: Provisioner, name: str) -> float:
    token = (await client.post("/cluster/nodes", json={})).raise_for_status().json()["token"]
    began = time.monotonic()
    handle = await provisioner.launch(WantedNode(name, "bench", target.url, token, slots=1))
    while not await _is_ready(client, name):
        if time.monotonic() - began > READY_SECONDS:
            raise TimeoutError(f"node {name} was not ready within {READY_SECONDS:g} s: {(await provisioner.poll([handle]))[handle]}")
        await asyncio.sleep(0.02)
    took = time.monotonic() - began
    await provisioner.terminate(handle)
    return took


async def _is_ready(client: httpx.AsyncClient, name: str) -> bool:
    nodes = (await client.get("/cluster/nodes", params={"status": "ready"})).raise_for_status().json()["items"]
    return any(node["name"] == name for node in nodes)


def measure_ssh() -> list[Figure]:
    """Launch nodes one by one on a host with Debian's OpenSSH on loopback: first one without packages, then one that has them, in turns with the
    agent that somebody starts there by hand."""
    if not Path(SSHD).exists():
        print("ssh: skipped, there is no sshd: apt-get install openssh-server", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as name, ssh_server(Path(name) / "host", SSH_HOST) as server:
        first, ready, by_hand = asyncio.run(_ssh_nodes(server, Path(name)))
    beside = summarize("", "s", by_hand, "").median
    compared = f"the agent started there by hand: {beside:.2f} s; the first node, with its packages: {first:.1f} s; goal: 3 s"
    return [summarize("ssh_node_ready_s", "s", ready, compared)]


async def _ssh_nodes(server: SshServer, folder: Path) -> tuple[float, list[float], list[float]]:
    # torch is on this machine already, and nothing is downloaded
    provider = {"hosts": [server.host], "key_file": str(server.key_file), "python": sys.executable, "packages_of": sys.executable}
    settings = SshSettings.model_validate(provider | {"pip_options": ["--no-index", "--no-deps"]})
    provisioner = SshProvisioner(settings, ProvisionerContext(folder, lambda _: None))
    name = ssh_node_name("bench", settings.hosts[0])
    async with coordinator(0) as target, target.client() as client:
        times, by_hand = [], []
        for number in range(NODES + 1):
            times.append(await _node(target, client, provisioner, name))
            await _is_cleared(server.home / ".paceline" / "nodes")
            await _forget(client, name)
            if number:
                by_hand.append(await _by_hand(target, client, server, f"by-hand-{number}"))
    return times[0], times[1:], by_hand


async def _forget(client: httpx.AsyncClient, name: str) -> None:
    """Remove the node from the cluster, so that its name is free again."""
    for node in (await client.get("/cluster/nodes")).raise_for_status().json()["items"]:
        if node["name"] == name:
            (await client.delete(f"/cluster/nodes/{node['id']}", params={"force": "true"})).raise_for_status()


async def _is_cleared(nodes: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while any(nodes.iterdir()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the host did not remove its node within {READY_SECONDS:g} s")
        await asyncio.sleep(0.05)


async def _by_hand(target: Coordinator, client: httpx.AsyncClient, server: SshServer, name: str) -> float:
    """Seconds until a node is ready whose agent is started through `ssh`, in an environment that is there."""
    token = (await client.post("/cluster/nodes", json={})).raise_for_status().json()["token"]
    options = ["-i", str(server.key_file), "-p", str(server.port), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    agent = ["-m", "paceline.cli.main", "worker", "--server", target.url, "--token", token, "--name", name, "--slots", "1"]
    command = shlex.join([sys.executable, *agent, "--data", str(server.home / name)])
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        "ssh", "-tt", "-q", *options, server.address, f"cd {ROOT} && {command}", stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        while not await _is_ready(client, name):
            if process.returncode is not None or time.monotonic() - began > READY_SECONDS:
                raise TimeoutError(f"node {name} was not ready within {READY_SECONDS:g} s")
            await asyncio.sleep(0.02)
        return time.monotonic() - began
    finally:
        if process.stdin is not None:
            process.stdin.write(CTRL_C)
        await asyncio.wait_for(process.wait(), READY_SECONDS)


MEASURES: dict[str, Callable[[], list[Figure]]] = {"autoscaler": measure_autoscaler, "slurm": measure_slurm, "ssh": measure_ssh}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="autoscaler | slurm | ssh", help="default: all")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures = []
    for name in arguments.names or MEASURES:
        figures += (found := MEASURES[name]())
        report(found, None)  # at once: the next one may break
    if arguments.json:
        report(figures, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
