"""Minutes without a coordinator: healthy jobs train on, and everything they produced arrives afterwards exactly once.

    python -m scripts.faults.outage [--seconds 600] [--json FILE]

A training job of two ranks that saves as it goes and a script that prints numbered lines run on a stack of their own. The coordinator
is killed, started again after that time, and the books are compared with what the ranks must have written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.cli.client import RestClient
from paceline.cli.job_facts import has_ended
from paceline.cli.local.processes import find, recorded
from paceline.cli.local.programs import COORDINATOR
from paceline.training.rank_folder import RankFolder
from scripts.faults.rig import Rig, end_in_order, rig
from scripts.steps import ROOT, say

SECONDS = 600.0
RANKS = 2
LINES_PER_SECOND = 20
SAVE_EVERY = 100
FIRST_STEPS = 20
STEPS = 10_000_000  # it is paused long before
START_TIMEOUT_S = 300.0  # on a machine that has more to do
#: The backlog is sent in batches as fast as the coordinator takes it.
CATCH_UP_TIMEOUT_S = 300.0
POLL_S = 0.2
#: How long the last look at the ranks may find nothing new.
PROGRESS_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Outage:
    seconds: float
    steps: int  # committed by the end
    steps_meanwhile: int
    records: int
    lines: int
    checkpoints: int
    caught_up_s: float  # from the coordinator's start until nothing was missing
    problems: tuple[str, ...]


def measure_outage(ours: Rig, seconds: float) -> Outage:
    """Stop the coordinator for `seconds`, start it again, and compare what it then has stored with what the ranks wrote."""
    client, lines = ours.client, int(seconds * LINES_PER_SECOND)  # the last ones, and the script's end, come while there is no coordinator
    training = str(client.create("/training/jobs", training_job())["id"])
    until("training is under way", lambda: client.job(training).progress.step >= FIRST_STEPS, START_TIMEOUT_S)
    printing = str(client.create("/training/jobs", printing_job(ours, lines))["id"])
    until("lines are printed", lambda: client.job(printing).state == "running", START_TIMEOUT_S)
    before, pids = client.job(training).progress.step, pids_of(client, training)
    kill_coordinator(ours)
    say(f"no coordinator for {seconds:g} s, from step {before}")
    time.sleep(seconds)
    problems = [*unwell(pids), *stuck(ours, training)]
    began = time.monotonic()
    ours.heal()
    problems += [f"rank {rank}'s process {pid} was replaced" for rank, pid in pids.items() if pids_of(client, training).get(rank) != pid]
    steps = paused_at(client, training)
    until("every line has come", lambda: has_ended(client.job(printing)), CATCH_UP_TIMEOUT_S + seconds)
    stored = StoredRecords(ours.layout.data, training, printing)
    return Outage(
        seconds=seconds,
        steps=steps,
        steps_meanwhile=steps - before,
        records=stored.records.total(),
        lines=len(stored.lines),
        checkpoints=stored.checkpoints.total(),
        caught_up_s=time.monotonic() - began,
        problems=(*problems, *stored.errors(steps, lines)),
    )


def training_job() -> dict[str, Any]:
    return {
        "name": "without-coordinator",
        "resources": {"nodes": RANKS},
        "model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 64, "context": 64},
        "data": {"kind": "stdlib_text"},
        "training": {"steps": STEPS, "global_batch_size": 8, "eval_every_steps": None},
        "checkpoint": {"every_steps": SAVE_EVERY},
        "fault_tolerance": {"recovery": "close_up", "max_restarts": 0},
    }


def printing_job(ours: Rig, lines: int) -> dict[str, Any]:
    folder = ours.layout.data / "printing"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "e2e" / "user_code" / "counting.py", folder)
    script = {"path": "counting.py", "args": [str(lines), str(LINES_PER_SECOND)]}
    return {"name": "printing", "script": script, "environment": {"working_directory": str(folder)}}


def pids_of(client: RestClient, job_id: str) -> dict[int, int]:
    """Return the known pids by rank."""
    return {rank.rank: rank.pid for rank in client.job(job_id).ranks if rank.pid is not None}


def kill_coordinator(ours: Rig) -> None:
    (process,) = [found for each in recorded(ours.layout) if each.name == COORDINATOR and (found := find(each))]
    process.kill()
    process.wait(timeout=START_TIMEOUT_S)


def unwell(pids: dict[int, int]) -> list[str]:
    return [f"rank {rank} (process {pid}) is gone" for rank, pid in pids.items() if not Path(f"/proc/{pid}").exists()]


def stuck(ours: Rig, training: str) -> list[str]:
    """Return a problem if the ranks write down no more steps."""
    agents = [ours.layout.agent(name) for name in ours.plan.agent_names]
    spools = [RankFolder(agent, training, 1, rank).metrics for agent in agents for rank in range(RANKS)]
    sizes = {spool: spool.stat().st_size for spool in spools if spool.exists()}
    try:
        until("all ranks write", lambda: all(spool.stat().st_size > size for spool, size in sizes.items()), PROGRESS_TIMEOUT_S)
    except TimeoutError as error:
        return [str(error)]
    return [] if len(sizes) == RANKS else [f"{len(sizes)} of {RANKS} ranks have written anything"]


def paused_at(client: RestClient, job_id: str) -> int:
    """The last step, once everything up to it is stored."""
    client.put(f"/training/jobs/{job_id}/pause", client.job_document(job_id)["revision"])
    until("the training job is paused", lambda: client.job(job_id).state == "paused", CATCH_UP_TIMEOUT_S)
    until("its last step is stored", lambda: client.job(job_id).progress.last_checkpoint_step == client.job(job_id).progress.step, 60.0)
    return client.job(job_id).progress.step


class StoredRecords:
    """The records, lines and checkpoints that the coordinator has stored."""

    def __init__(self, data: Path, training: str, printing: str) -> None:
        metrics, control = data / "metrics.db", data / "paceline.db"
        self.records = Counter(rows(metrics, "SELECT rank, step FROM metric_records WHERE job_id = ?", training))
        self.lines = [text for (text,) in rows(metrics, "SELECT text FROM log_lines WHERE job_id = ? ORDER BY seq", printing)]
        found = rows(control, "SELECT data FROM events WHERE job_id = ? AND type = 'checkpoint.committed'", training)
        self.checkpoints = Counter(int(json.loads(data)["step"]) for (data,) in found)

    def errors(self, steps: int, lines: int) -> list[str]:
        once = Counter((rank, step) for rank in range(RANKS) for step in range(1, steps + 1))
        saved = Counter({*range(SAVE_EVERY, steps + 1, SAVE_EVERY), steps})
        numbered = Counter(f"line {number:05d}" for number in range(lines))
        return [
            *unequal("records (rank, step)", self.records, once),
            *unequal("checkpoints", self.checkpoints, saved),
            *unequal("lines", Counter(self.lines), numbered),
            *(["lines are out of order"] if self.lines != sorted(self.lines) else []),
        ]


def rows(database: Path, query: str, job_id: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(query, (job_id,)).fetchall()


def unequal(what: str, found: Counter[Any], expected: Counter[Any]) -> list[str]:
    missing, surplus = expected - found, found - expected
    return [
        f"{what}: {each.total()} {word}, such as {next(iter(each))}" for word, each in (("missing", missing), ("too many", surplus)) if each
    ]


def until(what: str, condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(POLL_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"without a coordinator; {SECONDS:g} by default")
    parser.add_argument("--json", type=Path, help="write the outcome to this file")
    arguments = parser.parse_args()
    end_in_order()
    with rig(RANKS + 1) as ours:
        outage = measure_outage(ours, arguments.seconds)
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(outage), indent=2) + "\n")
    for name, value in asdict(outage).items():
        print(f"{name:18} {value}", flush=True)
    return 1 if outage.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
