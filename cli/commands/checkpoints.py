"""Checkpoints of a job, and new jobs from them."""

from __future__ import annotations

from typing import Annotated

import typer

from cli import formats
from cli.commands.jobs import JobRef
from cli.output import table
from cli.session import Session, with_session
from cli.views import Checkpoint, Job, view


@with_session
def checkpoints(session: Session, job: JobRef) -> None:
    """List a job's checkpoints, the newest first."""
    with session.client() as client:
        documents = client.pages(f"/checkpoints/jobs/{client.job_id(job)}")
    session.emit(documents, lambda: _table([view(document, Checkpoint) for document in documents]))
    if documents:
        session.next_steps(f"paceline restore {documents[0]['id']}")


@with_session
def restore(
    session: Session,
    checkpoint: Annotated[str, typer.Argument(help="checkpoint id, as 'paceline checkpoints JOB' lists them", show_default=False)],
    name: Annotated[str | None, typer.Option(help="of the new job; default: the old name with -restored")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="train to this many steps; default: as the spec says")] = None,
) -> None:
    """Start a new job that continues from a checkpoint."""
    body = {key: value for key, value in (("name", name), ("steps", steps)) if value is not None}
    with session.client() as client:
        document = client.create(f"/checkpoints/{checkpoint}/restore", body)
    job = view(document, Job)
    session.emit(document, lambda: f"{job.name} ({job.id}) continues from {checkpoint}; it is {job.state}")
    session.next_steps(f"paceline logs -f {job.name}")


def _table(items: list[Checkpoint]) -> str:
    rows = [
        [
            str(one.step),
            one.state,
            formats.quantity(one.bytes, "B"),
            formats.age(one.created_at),
            ", ".join(mark for mark, on in (("latest", one.latest), ("best", one.best), ("pinned", one.pinned)) if on) or formats.UNKNOWN,
            one.damage or ", ".join(f"{name} {formats.number(value)}" for name, value in one.metrics.items()) or formats.UNKNOWN,
            one.id,
        ]
        for one in items
    ]
    return table(["STEP", "STATE", "SIZE", "AGE", "MARKS", "METRICS", "ID"], rows, empty="no checkpoints yet")
