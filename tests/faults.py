"""Faults by (rank, step, moment), never by sleeping: a task whose chosen rank dies in the middle of the chosen step."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.waiting import wait_until

STOP_TIMEOUT_SECONDS = 60.0

#: When in the step: fetching data, computing the loss, going back; with every gradient of its own computed, before its sums go out
#: ("exchange") or the finished slices go round ("gather"); with every gradient summed, while the others do not know yet that all is
#: well ("news"), or just before the update. Or in the save that follows it: planning, writing tensors, hashing them, just before and just
#: after the rename (rank 0 only).
Moment = Literal["data", "loss", "backward", "exchange", "gather", "news", "update", "plan", "write", "hash", "publish", "published"]

#: Only ranks import it, from their job's folder.
TASK = Path(__file__).parent / "user_code" / "faulty_task.py"


class Fault(NamedTuple):
    """`rank` and `generation` are those that the process was started as. `kind` is a signal's name, "exception", "hold" (wait there until
    `release` is called), or how to get stuck: "loop", "native" (in C, with the interpreter's lock), "mismatch" (in a collective that nobody
    else comes to)."""

    rank: int
    step: int
    kind: str = "SIGKILL"
    moment: Moment = "loss"
    micro_batch: int | None = None  # None: the first one that comes to this moment
    generation: int | None = None  # None: whichever

    @property
    def done(self) -> str:
        """The file that tells that it happened."""
        place = f"{self.rank}" if self.generation is None else f"g{self.generation}.{self.rank}"
        return f"fault.{place}.{self.step}.{self.kind}.done"

    def release(self, folder: Path) -> None:
        (folder / self.done).with_suffix(".go").touch()


def go_on(pid: int) -> None:
    """Continue a process that stops itself: it says so just before it does, and a SIGCONT that comes in between is lost."""
    wait_until(lambda: state_of(pid) in "TX", f"the stop of process {pid}", seconds=STOP_TIMEOUT_SECONDS)
    os.kill(pid, signal.SIGCONT)


def state_of(pid: int) -> str:
    """One letter of the kernel's: R runs, S sleeps, T is stopped, X is gone; see proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def slow_down(folder: Path) -> Path:
    """Steps take a while until the answer is deleted: time to see what happens beside them, without waiting for the rest."""
    (folder / "slow").touch()
    return folder / "slow"


def faulty_job(folder: Path, *faults: Fault, nodes: int = 2, steps: int = 12, task: str = "task", **changes: Any) -> dict[str, Any]:
    """A job that closes up, with its code in `folder`. 12 samples a step in micro-batches of 2. `task`: "gpt" has dropout, "task" batch norm."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(TASK, folder / TASK.name)
    plan(folder, faults)
    training = {"steps": steps, "global_batch_size": 12, "micro_batch_size": 2, "eval_every_steps": None}
    return {
        "name": "faulty",
        "resources": {"nodes": nodes},
        "entrypoint": f"{TASK.stem}:{task}",
        "environment": {"working_directory": str(folder)},
        "training": training,
        "checkpoint": {"every_steps": None},
        "fault_tolerance": {"recovery": "close_up"},
    } | changes


def plan(folder: Path, faults: Iterable[Fault]) -> None:
    """Read by processes as they start."""
    (folder / "faults.json").write_text(json.dumps([fault._asdict() | {"done": fault.done} for fault in faults]))


def computed(folder: Path) -> Counter[tuple[int, int, int]]:
    """How often which process began to compute which micro-batch of which step: (pid, step, micro-batch)."""
    return Counter((int(pid), int(step), int(index)) for pid, step, index in _notes(folder / "computed"))


def states(folder: Path) -> dict[int, set[str]]:
    """By step, the hashes of parameters and running statistics that the processes came to: one, where all is well."""
    found: dict[int, set[str]] = {}
    for _, step, digest in _notes(folder / "states"):
        found.setdefault(int(step), set()).add(digest)
    return found


def _notes(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()]
