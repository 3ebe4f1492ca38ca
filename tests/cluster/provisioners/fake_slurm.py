"""sbatch, squeue and scancel without Slurm: one program by three names, its jobs in a file. The test decides how they go on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent if __name__ != "__main__" else Path(sys.argv[0]).parent
#: Of a job, by squeue's names of them.
FIELDS = {"%A": "id", "%T": "state", "%e": "end", "%S": "start", "%k": "comment", "%j": "name", "%r": "reason"}


def install(folder: Path) -> None:
    """Put the programs into a folder that is to be the first of PATH."""
    for name in ("sbatch", "squeue", "scancel"):
        (folder / name).write_text(f"#!{sys.executable} -IS\n" + Path(__file__).read_text())
        (folder / name).chmod(0o755)
    (folder / "jobs.json").write_text("[]")


def jobs(folder: Path) -> list[dict[str, Any]]:
    """The jobs that were submitted."""
    found: list[dict[str, Any]] = json.loads((folder / "jobs.json").read_text())
    return found


def change(folder: Path, **values: str) -> None:
    """Change all jobs."""
    (folder / "jobs.json").write_text(json.dumps([{**job, **values} for job in jobs(folder)]))


def sbatch(words: list[str]) -> int:
    refusal = FOLDER / "refuses"
    if refusal.exists():
        print(f"sbatch: error: {refusal.read_text()}", file=sys.stderr)
        return 1
    options = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    names = options["export"].split(",")
    job = {
        "id": str(100 + len(jobs(FOLDER))),
        "name": options["job-name"],
        "comment": options["comment"],
        "state": "PENDING",
        "end": "N/A",
        "start": "N/A",
        "reason": "Priority",
        "words": words,
        "script": sys.stdin.read(),
        "environment": {name: os.environ[name] for name in names if name in os.environ},
    }
    (FOLDER / "jobs.json").write_text(json.dumps([*jobs(FOLDER), job]))
    print(job["id"])
    return 0


def squeue(words: list[str]) -> int:
    format = next(word.removeprefix("--format=") for word in words if word.startswith("--format="))
    for job in jobs(FOLDER):
        print("|".join(job[FIELDS[field]] for field in format.split("|")))
    return 0


def scancel(words: list[str]) -> int:
    found = [job for job in jobs(FOLDER) if job["id"] == words[-1]]
    if not found or found[0]["state"] == "CANCELLED":
        print(f"scancel: error: Kill job error on job id {words[-1]}: Invalid job id specified", file=sys.stderr)
        return 1
    (FOLDER / "jobs.json").write_text(
        json.dumps([{**job, "state": "CANCELLED"} if job["id"] == words[-1] else job for job in jobs(FOLDER)])
    )
    return 0


if __name__ == "__main__":
    if (FOLDER / "down").exists():
        print(f"{Path(sys.argv[0]).name}: error: Unable to contact slurm controller (connect failure)", file=sys.stderr)
        sys.exit(1)
    sys.exit({"sbatch": sbatch, "squeue": squeue, "scancel": scancel}[Path(sys.argv[0]).name](sys.argv[1:]))
