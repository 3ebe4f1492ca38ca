"""Seconds that sending 5 MB of code adds to a job: `bundle_submit_s`, unchanged and changed.

Real coordinator and agent. A job with a script that ends at once is timed from the moment at which its folder is packed, or its spec is sent, to its
end; each job with code is compared with one without, timed right before it. Changed: one of the files is another one than the last time, so the
archive is sent, fetched and unpacked anew.
"""

from __future__ import annotations

import contextlib
import io
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from paceline.cli.client import RestClient
from paceline.cli.code_bundle import with_code
from scripts.bench.figures import Figure, run_shortened, summarize
from scripts.bench.first_step import job_ended, stack

ROUNDS, QUICK_ROUNDS = 12, 3
FILES, FILE_BYTES = 500, 10_000
GOAL_UNCHANGED_S, GOAL_CHANGED_S = 0.1, 0.5
SCRIPT = "print('done')\n"


def make_folder(folder: Path) -> None:
    """Write 5 MB of text that compresses about as well as source code."""
    words = [f"name_{number}" for number in range(2000)]
    noise = random.Random(0)
    for number in range(FILES):
        text = ""
        while len(text) < FILE_BYTES:
            text += f"{noise.choice(words)} = {noise.choice(words)}({noise.choice(words)}, {noise.random()})\n"
        path = folder / f"package_{number % 20}" / f"module_{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text[:FILE_BYTES])
    (folder / "train.py").write_text(SCRIPT)


def seconds(client: RestClient, folder: Path, *, with_bundle: bool) -> float:
    """Return the seconds from here to the end of a job."""
    spec: dict[str, Any] = {"name": "bundle", "resources": {"nodes": 1}}
    began = time.monotonic()
    if with_bundle:
        with contextlib.redirect_stderr(io.StringIO()):
            spec = with_code(client, spec | {"script": {"path": "train.py"}}, folder)
    else:
        spec |= {"script": {"path": str(folder / "train.py")}}
    job = job_ended(client, client.create("/training/jobs", spec)["id"])
    if job.state != "completed":
        raise RuntimeError(f"the job ended as {job.state} ({job.end_reason}): {job.failure}")
    return time.monotonic() - began


def measure(quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="paceline-bench-code-") as name, stack(agents=1) as client:
        folder = Path(name)
        make_folder(folder)
        seconds(client, folder, with_bundle=True)
        unchanged, changed = [], []
        for number in range(QUICK_ROUNDS if quick else ROUNDS):
            without = seconds(client, folder, with_bundle=False)
            unchanged.append(seconds(client, folder, with_bundle=True) - without)
            (folder / "package_0" / "module_0.py").write_text(f"changed = {number}\n")
            without = seconds(client, folder, with_bundle=False)
            changed.append(seconds(client, folder, with_bundle=True) - without)
    what = f"{FILES} files, {FILES * FILE_BYTES / 1e6:g} MB; more than without; goal"
    return [
        summarize("bundle_submit_unchanged_s", "s", unchanged, f"{what} {GOAL_UNCHANGED_S:g} s"),
        summarize("bundle_submit_changed_s", "s", changed, f"{what} {GOAL_CHANGED_S:g} s"),
    ]


if __name__ == "__main__":
    run_shortened(measure, __doc__)
