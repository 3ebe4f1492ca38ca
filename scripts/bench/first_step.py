"""Submission to the first committed step: `first_step_warm_s`, `first_step_cold_s`, beside torchrun starting the same training.

Real coordinator, two real agents, jobs submitted through the REST API; both ends of the time are the coordinator's records (the job's
`created_at`, the generation's `first_step_at`). Warm: a stack that has run a job. Cold: the first job of a stack that has just come up.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.cli import job_facts
from paceline.cli.api_types import Job
from paceline.cli.client import RestClient
from paceline.cli.documents import read_spec
from paceline.cli.local.layout import Layout
from paceline.cli.local.programs import StackPlan
from paceline.cli.local.stack import bring_up, take_down
from scripts.bench.figures import Figure, run, summarize
from scripts.bench.torchrun_script import FIRST_STEP
from scripts.steps import ROOT, say

WARM_JOBS = 15
COLD_STACKS = 4
TORCHRUN_STARTS = 4
STEPS = 3
JOB_TIMEOUT_S = 60.0
POLL_S = 0.05
PORT = 18400
KNOWN = "Ray Jobs 0.87 s to the first output line, tuned Slurm 0.49 s"


def spec() -> dict[str, Any]:
    """The example, cut short: the start is what counts."""
    changes = [f"training.steps={STEPS}", "training.eval_every_steps=null", "training.generate_tokens=0", "checkpoint.every_steps=null"]
    return read_spec(str(ROOT / "examples" / "gpt_stdlib.yaml"), changes)


@contextmanager
def stack(agents: int = 2) -> Iterator[RestClient]:
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        layout = Layout.at(Path(folder))
        try:
            with bring_up(layout, StackPlan(port=PORT, agents=agents), say).client() as client:
                yield client
        finally:
            take_down(layout, say)


def seconds_to_first_step(client: RestClient) -> float:
    """Return the seconds from a job's submission to its first step. Waits for the job's end, so that the next one finds free slots."""
    job_id = client.create("/training/jobs", spec())["id"]
    job = job_ended(client, job_id)
    seconds = job_facts.seconds_to_first_step(job)
    if job.state != "completed" or seconds is None:
        raise RuntimeError(f"the job ended as {job.state} ({job.end_reason}): {job.failure}")
    return seconds


def job_ended(client: RestClient, job_id: str, timeout_s: float = JOB_TIMEOUT_S) -> Job:
    deadline = time.monotonic() + timeout_s
    while not job_facts.has_ended(job := client.job(job_id)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{job_id} is still {job.state} after {timeout_s:g} s")
        threading.Event().wait(POLL_S)
    return job


def torchrun_command(*program: str, ranks: int = 2, restarts: int = 0) -> list[str]:
    """Return the command that runs `program`, a file or `-m` and a module, with its arguments, on ranks of this machine."""
    options = ["--standalone", "--nproc-per-node", str(ranks), "--max-restarts", str(restarts)]
    return [sys.executable, "-m", "torch.distributed.run", *options, *program]


def torchrun_seconds() -> float:
    """Return the seconds from torchrun's command to its first committed step."""
    command = torchrun_command("-m", "scripts.bench.torchrun_script")
    began = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if FIRST_STEP in line:
                return time.monotonic() - began
    raise RuntimeError(f"torchrun ended with {process.returncode} before its first step")


def measure() -> list[Figure]:
    torchrun = summarize("torchrun", "s", [torchrun_seconds() for _ in range(TORCHRUN_STARTS)], "")
    beside = f"torchrun here {torchrun.median:.2f} s; {KNOWN}"
    cold = []
    for _ in range(COLD_STACKS):
        with stack() as client:
            cold.append(seconds_to_first_step(client))
    with stack() as client:
        seconds_to_first_step(client)
        warm = [seconds_to_first_step(client) for _ in range(WARM_JOBS)]
    return [summarize("first_step_warm_s", "s", warm, beside), summarize("first_step_cold_s", "s", cold, beside)]


if __name__ == "__main__":
    run(measure, __doc__)
