"""Changes what jobs should do: pause, resume, resize, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.completion import JobRef, job_references
from paceline.cli.errors import UsageProblem
from paceline.cli.job_changes import change_job, change_text
from paceline.cli.job_facts import has_ended, is_script
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import note
from paceline.cli.session import Session, with_session

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

JobRefs = Annotated[
    list[str], typer.Argument(metavar="JOB...", help="names, ids, or beginnings of ids", show_default=False, autocompletion=job_references)
]


@with_session
def pause(session: Session, job: JobRef) -> None:
    """Save a checkpoint, stop the ranks and free the slots. A script has to save at SIGTERM (script.saves_on_sigterm)."""
    _change(session, job, "pause", f"paceline resume {job}")


@with_session
def resume(session: Session, job: JobRef) -> None:
    """Continue a paused job at its next step. A script is restarted, and continues from what it has saved."""
    _change(session, job, "resume", f"paceline logs -f {job}")


@with_session
def resize(
    session: Session,
    job: JobRef,
    nodes: Annotated[
        int | None, typer.Argument(metavar="NODES", min=1, help="so many times resources.slots_per_node ranks", show_default=False)
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="in place of NODES: the number of ranks; for jobs that ask for slots, or for nodes")
    ] = None,
) -> None:
    """Set how many ranks a job should have. Elastic jobs grow and shrink while they run; an elastic script is restarted."""
    if (nodes is None) == (slots is None):
        raise UsageProblem("resize takes NODES or --slots N, one of them", f"for example: paceline resize {job} --slots 6")
    _change(session, job, "resize", f"paceline show {job}", {"nodes": nodes} if slots is None else {"slots": slots})


@with_session
def cancel(session: Session, jobs: JobRefs, yes: Yes = False) -> None:
    """Stop jobs for good; their checkpoints stay. At a terminal it asks first."""
    with session.client() as client:
        chosen = _to_cancel(client, jobs)
        if not yes:
            confirm("\n".join(map(_loss, chosen)), "Cancel?")
        documents = [change_job(client, job.id, "cancel") for job in chosen]
    cancelled = [parsed(document, Job) for document in documents]
    session.emit(documents if len(jobs) > 1 else documents[0], lambda: "\n".join(change_text(job, "cancel") for job in cancelled))
    if len(jobs) == 1 and not is_script(cancelled[0]):  # what a script has saved is not known
        session.next_steps(f"paceline checkpoints {jobs[0]}")


def _to_cancel(client: RestClient, references: list[str]) -> list[Job]:
    """The named jobs, each once, without those that have ended already. Where all have, they are left in: the coordinator says why not."""
    named = [client.job(job_id) for job_id in dict.fromkeys(client.job_id(reference) for reference in references)]
    going_on = [job for job in named if not has_ended(job)]
    if going_on:
        note(*(f"{job.name} ({job.id}) is left alone: it has ended, {job.state}" for job in named if has_ended(job)))
    return going_on or named


def _loss(job: Job) -> str:
    """What ends for good: "gpt (01J...): running at step 120/1000; 20 steps since its last checkpoint will be lost"."""
    saved = job.progress.last_checkpoint_step or 0
    unsaved = 0 if is_script(job) else job.progress.step - saved
    lost = f"; {formats.count(unsaved, 'step')} since its last checkpoint will be lost" if unsaved > 0 else ""
    return f"{job.name} ({job.id}): {job.state} at step {formats.steps(job.progress.step, job.progress.total_steps)}{lost}"


def _change(session: Session, reference: str, verb: str, following: str, body: Any = None) -> None:
    """Change a job, and print it. `following`: the command that comes next."""
    with session.client() as client:
        document = change_job(client, client.job_id(reference), verb, body)
    session.emit(document, lambda: change_text(parsed(document, Job), verb))
    session.next_steps(following)
