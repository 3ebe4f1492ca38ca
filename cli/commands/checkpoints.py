"""Checkpoints of a job, new jobs from them, and the export of their weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Checkpoint, Job, ListedCheckpoint
from paceline.cli.completion import OptionalJob
from paceline.cli.errors import ApiProblemError, CliError, TakenError, UsageProblem
from paceline.cli.exits import ExitCode
from paceline.cli.help import CommandGroup, PlainGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import fields, table
from paceline.cli.session import Session, with_session
from paceline.objects.location import is_url

CheckpointRef = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="id, as 'paceline checkpoints JOB' lists them", show_default=False)
]
#: What the manifest of a backup is called.
BACKUP = "backup.json"
GIGABYTE = 1_000_000_000
#: Errors by the exit codes of `training.saving.export`.
KINDS: dict[int, type[CliError]] = {ExitCode.CONFLICT: TakenError, ExitCode.USAGE: UsageProblem}


class ListsByDefault(PlainGroup):
    """`checkpoints JOB` and `checkpoints` are `checkpoints list ...`: the first word that is no command begins the list's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = CommandGroup(
    cls=ListsByDefault, help="List, delete and pin checkpoints. 'paceline checkpoints JOB' lists those of a job, and without a JOB of all."
)


@app.command("list")
@with_session
def list_checkpoints(
    session: Session,
    job: OptionalJob = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="without a JOB: at most this many")] = 50,
) -> None:
    """List a job's checkpoints, or those of all jobs, the newest first."""
    with session.client() as client:
        if job is None:
            documents = client.pages("/checkpoints", limit)
            session.emit(documents, lambda: _table_of_all([parsed(document, ListedCheckpoint) for document in documents]))
        else:
            documents = client.pages(f"/checkpoints/jobs/{client.job_id(job)}")
            session.emit(documents, lambda: _table([parsed(document, Checkpoint) for document in documents]))
    if documents:
        session.next_steps(f"paceline restore {documents[0]['id']}")


@app.command()
@with_session
def pin(session: Session, checkpoint: CheckpointRef) -> None:
    """Keep a checkpoint, whatever the retention says."""
    _put(session, checkpoint, "pin")


@app.command()
@with_session
def unpin(session: Session, checkpoint: CheckpointRef) -> None:
    """Leave a checkpoint to the retention again."""
    _put(session, checkpoint, "unpin")


@app.command()
@with_session
def delete(
    session: Session,
    checkpoint: CheckpointRef,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask, even if a job depends on it, or it is pinned")] = False,
) -> None:
    """Delete a checkpoint; its node removes the files. At a terminal it asks first. One that a job depends on, or that is pinned, needs --yes."""
    with session.client() as client:
        try:
            if not yes:
                confirm(f"The checkpoint {checkpoint} and its files will be deleted.", "Delete?")
            document = client.delete(f"/checkpoints/{quote(checkpoint, safe='')}", confirm=yes)
        except ApiProblemError as error:
            if error.code == "checkpoint_in_use":
                error.hint = f"paceline checkpoints delete {checkpoint} --yes"
            raise
    session.emit(document, lambda: f"the checkpoint of step {document['step']} is {document['state']}")


@app.command()
@with_session
def download(
    session: Session,
    checkpoint: CheckpointRef,
    into: Annotated[Path, typer.Option("--into", "-d", metavar="DIR", help="output folder (created if missing)")] = Path("checkpoints"),
    weights: Annotated[bool, typer.Option("--safetensors", help="its weights as safetensors, in place of the whole checkpoint")] = False,
) -> None:
    """Download a checkpoint as a tar, or its weights as safetensors, from a coordinator that sees its folder or may read its object store."""
    with session.client() as client:
        url = f"/checkpoints/{quote(checkpoint, safe='')}"
        step = parsed(client.get(url), Checkpoint).step
        into.mkdir(parents=True, exist_ok=True)
        scratch = into / f".{checkpoint}.part"
        kind = client.download_named(f"{url}/download?format={'safetensors' if weights else 'checkpoint'}", scratch)
        target = into / kind
        scratch.replace(target)
    session.emit({"file": str(target), "step": step, "bytes": target.stat().st_size}, lambda: str(target))
    if target.suffix == ".tar":
        session.next_steps(f"tar -xf {target}")


def _put(session: Session, checkpoint: str, verb: str) -> None:
    with session.client() as client:
        document = client.put(f"/checkpoints/{quote(checkpoint, safe='')}/{verb}")
    session.emit(document, lambda: f"the checkpoint of step {document['step']} is {'' if document['pinned'] else 'not '}pinned")


@with_session
def restore(
    session: Session,
    checkpoint: CheckpointRef,
    name: Annotated[str | None, typer.Option(help="of the new job; default: the old name with -restored")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="train to this many steps; default: as the spec says")] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="set the checkpoint's own job back to it: a paused or ended one")] = False,
    yes: Yes = False,
) -> None:
    """Start a new job from a checkpoint, or set its own job back to it, which at a terminal asks first. ('paceline db restore'
    puts a backup of the databases back.)"""
    if (Path(checkpoint) / BACKUP).is_file():
        raise UsageProblem(f"{checkpoint} is a backup of the databases, not a checkpoint", f"paceline db restore {checkpoint}")
    if in_place and name is not None:
        raise UsageProblem(f"--name {name} is of a new job; --in-place keeps the job and its name", "leave out one of them")
    body = {key: value for key, value in (("name", name), ("steps", steps), ("in_place", in_place or None)) if value is not None}
    if in_place and not yes:
        confirm(f"The job of checkpoint {checkpoint} will be set back to it: the steps after it are trained again.", "Set back?")
    with session.client() as client:
        document = client.create(f"/checkpoints/{quote(checkpoint, safe='')}/restore", body)
    job = parsed(document, Job)
    session.emit(document, lambda: f"{job.name} ({job.id}) continues from {checkpoint}; it is {job.state}\npage  {client.job_page(job.id)}")
    session.next_steps(f"paceline logs -f {job.name}")


@with_session
def export(
    session: Session,
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="checkpoint id, as 'paceline checkpoints JOB' lists them, its folder, or its URL in an object store", show_default=False
        ),
    ],
    into: Annotated[Path, typer.Option("--into", "-d", metavar="DIR", help="new folder for the files", show_default=False)],
    file_gb: Annotated[float, typer.Option("--file-gb", min=0.000_001, help="gigabytes of tensors in a file, at most")] = 5.0,
) -> None:
    """Export a checkpoint to safetensors (Hugging Face layout). Run it where the checkpoint folder is mounted, or with credentials for its store."""
    place, options = _place_of(session, checkpoint)
    document = _exported(place, options, into, int(file_gb * GIGABYTE))
    session.emit(document, lambda: fields([(name, _spelled(value)) for name, value in document.items()]))
    session.next_steps(f"a job with 'initial_weights: {document['folder']}'")


def _place_of(session: Session, checkpoint: str) -> tuple[str, dict[str, str]]:
    """The folder or the URL of a checkpoint, and where its store is, as far as its job says."""
    if is_url(checkpoint) or Path(checkpoint).is_dir():
        return checkpoint if is_url(checkpoint) else str(Path(checkpoint).resolve()), {}
    with session.client() as client:
        found = client.get(f"/checkpoints/{quote(checkpoint, safe='')}")
        if is_url(found["directory"]):
            spec = client.get(f"/training/jobs/{found['job_id']}").get("spec") or {}
            return found["directory"], dict((spec.get("checkpoint") or {}).get("options") or {})
    folder = Path(found["directory"])
    if not folder.is_dir():
        raise UsageProblem(f"checkpoint {checkpoint} is in {folder}, which this machine does not see", "export it on a node of its job")
    return str(folder.resolve()), {}


def _exported(place: str, options: dict[str, str], into: Path, limit: int) -> dict[str, Any]:
    """Export in a process of its own: it needs torch."""
    from paceline.cli.local.torch_here import require_torch
    from paceline.location import ROOT

    require_torch("reading a checkpoint")

    command = [sys.executable, "-m", "paceline.training.saving.export", place, str(into.resolve()), "--limit", str(limit)]
    command += [word for name, value in options.items() for word in (f"--store-{name}", value)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KINDS.get(done.returncode, CliError)(
            (done.stderr.strip().splitlines() or [f"the export ended with code {done.returncode}"])[-1]
        )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _spelled(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _marks(one: Checkpoint | ListedCheckpoint) -> str:
    return ", ".join(mark for mark, on in (("latest", one.latest), ("best", one.best), ("pinned", one.pinned)) if on) or formats.UNKNOWN


def _table_of_all(items: list[ListedCheckpoint]) -> str:
    rows = [
        [one.job_name, str(one.step), one.state, formats.quantity(one.bytes, "B"), formats.age(one.created_at), _marks(one), one.id]
        for one in items
    ]
    return table(["JOB", "STEP", "STATE", "SIZE", "AGE", "MARKS", "ID"], rows, empty="no checkpoints")


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
            _marks(one),
            one.damage or ", ".join(f"{name} {formats.number(value)}" for name, value in one.metrics.items()) or formats.UNKNOWN,
            one.id,
        ]
        for one in items
    ]
    return table(["STEP", "STATE", "SIZE", "AGE", "WAITED", "WRITTEN IN", "STEPS", "MARKS", "METRICS", "ID"], rows, empty="no checkpoints")
