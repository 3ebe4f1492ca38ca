"""Checkpoints of a job, new jobs from them, and the export of their weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.cli import formats
from paceline.cli.answers import parsed
from paceline.cli.api_types import Checkpoint, Job
from paceline.cli.commands.jobs import JobRef
from paceline.cli.errors import CliError, TakenError, UsageProblem
from paceline.cli.exits import ExitCode
from paceline.cli.output import fields, table
from paceline.cli.session import Session, with_session

#: What the manifest of a backup is called.
BACKUP = "backup.json"
GIGABYTE = 1_000_000_000
#: Errors by the exit codes of `training.saving.export`.
KINDS: dict[int, type[CliError]] = {ExitCode.CONFLICT: TakenError, ExitCode.USAGE: UsageProblem}


@with_session
def checkpoints(session: Session, job: JobRef) -> None:
    """List a job's checkpoints, the newest first."""
    with session.client() as client:
        documents = client.pages(f"/checkpoints/jobs/{client.job_id(job)}")
    session.emit(documents, lambda: _table([parsed(document, Checkpoint) for document in documents]))
    if documents:
        session.next_steps(f"paceline restore {documents[0]['id']}")


@with_session
def restore(
    session: Session,
    checkpoint: Annotated[str, typer.Argument(help="checkpoint id, as 'paceline checkpoints JOB' lists them", show_default=False)],
    name: Annotated[str | None, typer.Option(help="of the new job; default: the old name with -restored")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="train to this many steps; default: as the spec says")] = None,
) -> None:
    """Start a new job that continues from a checkpoint. ('paceline db restore' puts a backup of the databases back.)"""
    if (Path(checkpoint) / BACKUP).is_file():
        raise UsageProblem(f"{checkpoint} is a backup of the databases, not a checkpoint", f"paceline db restore {checkpoint}")
    body = {key: value for key, value in (("name", name), ("steps", steps)) if value is not None}
    with session.client() as client:
        document = client.create(f"/checkpoints/{checkpoint}/restore", body)
    job = parsed(document, Job)
    session.emit(document, lambda: f"{job.name} ({job.id}) continues from {checkpoint}; it is {job.state}")
    session.next_steps(f"paceline logs -f {job.name}")


@with_session
def export(
    session: Session,
    checkpoint: Annotated[
        str, typer.Argument(help="checkpoint id, as 'paceline checkpoints JOB' lists them, or its folder", show_default=False)
    ],
    into: Annotated[Path, typer.Option("--into", "-d", metavar="DIR", help="new folder for the files", show_default=False)],
    file_gb: Annotated[float, typer.Option("--file-gb", min=0.000_001, help="gigabytes of tensors in a file, at most")] = 5.0,
) -> None:
    """Write a checkpoint's model as safetensors, as Hugging Face lays them out. On a machine that sees the checkpoint's folder."""
    folder = _folder_of(session, checkpoint)
    document = _exported(folder, into, int(file_gb * GIGABYTE))
    session.emit(document, lambda: fields([(name, _spelled(value)) for name, value in document.items()]))
    session.next_steps(f"a job with 'initial_weights: {document['folder']}'")


def _folder_of(session: Session, checkpoint: str) -> Path:
    if Path(checkpoint).is_dir():
        return Path(checkpoint)
    with session.client() as client:
        folder = Path(client.get(f"/checkpoints/{checkpoint}")["directory"])
    if not folder.is_dir():
        raise UsageProblem(f"checkpoint {checkpoint} is in {folder}, which this machine does not see", "export it on a node of its job")
    return folder


def _exported(folder: Path, into: Path, limit: int) -> dict[str, Any]:
    """Export in a process of its own: it needs torch."""
    from paceline.cli.local.torch_here import require_torch
    from paceline.location import ROOT

    require_torch("reading a checkpoint")

    command = [sys.executable, "-m", "paceline.training.saving.export", str(folder.resolve()), str(into.resolve()), "--limit", str(limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KINDS.get(done.returncode, CliError)(
            (done.stderr.strip().splitlines() or [f"the export ended with code {done.returncode}"])[-1]
        )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _spelled(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _table(items: list[Checkpoint]) -> str:
    rows = [
        [
            str(one.step),
            one.state,
            formats.quantity(one.bytes, "B"),
            formats.age(one.created_at),
            formats.seconds(one.stall_seconds),
            formats.seconds(one.write_seconds),
            formats.times(one.slowdown),
            ", ".join(mark for mark, on in (("latest", one.latest), ("best", one.best), ("pinned", one.pinned)) if on) or formats.UNKNOWN,
            one.damage or ", ".join(f"{name} {formats.number(value)}" for name, value in one.metrics.items()) or formats.UNKNOWN,
            one.id,
        ]
        for one in items
    ]
    return table(["STEP", "STATE", "SIZE", "AGE", "WAITED", "WRITTEN IN", "STEPS", "MARKS", "METRICS", "ID"], rows, empty="no checkpoints")
