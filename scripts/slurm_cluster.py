"""A real Slurm on this machine: munged, slurmctld and several slurmd, in a folder and on ports of their own. For tests and benchmarks.

It needs root and Debian's packages slurm-wlm and munge. Nothing of the machine's own Slurm configuration is read or written.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
READY_SECONDS, END_SECONDS = 60.0, 15.0
CONFIGURATION = """\
ClusterName=paceline
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,sched_interval=1,bf_interval=1,batch_sched_delay=0,max_rpc_cnt=0
ReturnToService=2
KillWait={kill_wait}
MinJobAge={min_job_age}
InactiveLimit=0
OverTimeLimit=0
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=work Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime={kill_wait}
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
NODE = "NodeName=node{number} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 State=UNKNOWN"


def missing_programs() -> list[str]:
    """The programs of Slurm and munge that are not installed here."""
    return [name for name in PROGRAMS if shutil.which(name) is None and not Path("/usr/sbin", name).exists()]


@dataclass
class SlurmCluster:
    """A running Slurm. `environment` is what its commands need."""

    folder: Path
    first_port: int  # it takes this port, and one more for each slurmd
    nodes: int = 3
    kill_wait: int = 20
    min_job_age: int = 2  # seconds for which a job that has ended is still told of
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Start all daemons and wait until every node is idle. Raises RuntimeError with the log's end where that does not come."""
        for name in ("state", "munge", *(f"spool-node{number}" for number in range(1, self.nodes + 1))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._start_munge()
        nodes = "\n".join(NODE.format(number=number, port=self.first_port + number) for number in range(1, self.nodes + 1))
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                port=self.first_port,
                munge=self.folder / "munge/socket",
                folder=self.folder,
                kill_wait=self.kill_wait,
                min_job_age=self.min_job_age,
                nodes=nodes,
            )
        )
        self._run("/usr/sbin/slurmctld", "-D")
        for number in range(1, self.nodes + 1):
            self._run("/usr/sbin/slurmd", "-D", "-N", f"node{number}")
        self._await(lambda: self.command("sinfo", "-h", "-N", "-p", "work", "-o", "%T").split() == ["idle"] * self.nodes, "idle nodes")

    def command(self, *words: str) -> str:
        """The output of one of Slurm's commands; empty where it fails."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    def stop(self) -> None:
        """Cancel all jobs, wait for their end, and end every daemon: a job's slurmstepd outlives that of slurmd."""
        self.command("scancel", "--user", "root", "--signal=KILL", "--full")
        deadline = time.monotonic() + END_SECONDS
        while self.command("squeue", "--noheader").strip() and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        (folder / "key").write_bytes(secrets.token_bytes(128))
        (folder / "key").chmod(0o600)
        options = ("socket", "pid-file", "log-file", "seed-file")
        files = [f"--{option}={folder / option.removesuffix('-file')}" for option in options]
        self._run("/usr/sbin/munged", "--foreground", "--force", f"--key-file={folder / 'key'}", *files)
        self._await((folder / "socket").exists, "munge's socket")

    def _run(self, *command: str) -> None:
        with (self.folder / "daemons.log").open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    command, env=self.environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
                )
            )

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                log = "\n".join((self.folder / "daemons.log").read_text(errors="replace").splitlines()[-20:])
                self.stop()
                raise RuntimeError(f"Slurm has no {what} within {READY_SECONDS:g} s:\n{log}")
            time.sleep(0.05)
