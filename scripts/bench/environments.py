"""Jobs that bring packages: `env_build_cached_s`, a node's look for an environment that it has built, and `first_step_new_env_s`, the submission to the
first step of the second job with the same requirements, beside the same script without any.

Needs a package index: the first job of the stack installs a small package.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from paceline.cli import job_facts
from paceline.cli.client import RestClient
from paceline.cluster.agent.environments.built import BuiltEnvironments
from paceline.cluster.agent.environments.node_python import this_python
from scripts.bench.figures import Figure, run_shortened, summarize
from scripts.bench.first_step import job_ended, stack

REQUIREMENTS = ("cowsay==6.1",)
LOOKS, JOBS, QUICK_JOBS = 50, 8, 2
#: For a job whose packages may have to come from the index, which answers when it can.
JOB_TIMEOUT_S = 300.0
PROGRAM = "import cowsay, paceline\npaceline.log(1, loss=1.0)\n"
PLAIN = PROGRAM.replace("cowsay, ", "")


def looks() -> list[float]:
    """Seconds that a node takes to find an environment that it has: the key, and the look at the disk."""

    async def measure(folder: Path) -> list[float]:
        node, found = this_python(), []
        built = BuiltEnvironments(folder, None, dict(os.environ), list)
        for _ in range(LOOKS + 1):
            began = time.perf_counter()
            await built.interpreter(node, REQUIREMENTS, own_torch=False, say=lambda _: None)
            found.append(time.perf_counter() - began)
        return found[1:]

    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        return asyncio.run(measure(Path(folder, "environments")))


def seconds(client: RestClient, program: Path, **environment: Any) -> float:
    """Seconds from the submission of a script to the first step that it logs, both by the coordinator's records."""
    spec = {"name": "packages", "script": {"path": str(program)}, "environment": environment, "resources": {"slots": 2}}
    job = job_ended(client, client.create("/training/jobs", spec)["id"], JOB_TIMEOUT_S)
    found = job_facts.seconds_to_first_step(job)
    if job.state != "completed" or found is None:
        raise RuntimeError(f"the job ended as {job.state} ({job.end_reason}): {job.failure}")
    return found


def measure(quick: bool) -> list[Figure]:
    cached = looks()
    with tempfile.TemporaryDirectory() as folder, stack() as client:
        program, plain = Path(folder, "program.py"), Path(folder, "plain.py")
        program.write_text(PROGRAM)
        plain.write_text(PLAIN)
        first = seconds(client, program, requirements=list(REQUIREMENTS))
        second, without = [], []
        for _ in range(QUICK_JOBS if quick else JOBS):
            second.append(seconds(client, program, requirements=list(REQUIREMENTS)))
            without.append(seconds(client, plain))
    beside = summarize("", "s", without, "").median
    return [
        summarize("env_build_cached_s", "s", cached, "goal: 0.2"),
        summarize(
            "first_step_new_env_s", "s", second, f"goal: 1.0; the same script without packages {beside:.2f}, the first job {first:.1f}"
        ),
    ]


if __name__ == "__main__":
    run_shortened(measure, __doc__)
