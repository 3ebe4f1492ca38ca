"""The code that a job was submitted with: get it back, and run it again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.commands.submit import Changes, Workdir, summary
from paceline.cli.completion import JobRef
from paceline.cli.errors import UsageProblem
from paceline.cli.job_facts import code_origin, warning_lines
from paceline.cli.render.output import fields, note
from paceline.cli.session import Session, with_session
from paceline.monitoring.words import plural

if TYPE_CHECKING:
    from paceline.cli.client import RestClient


@with_session
def code(
    session: Session,
    job: JobRef,
    into: Annotated[Path | None, typer.Option("--into", "-d", metavar="DIR", help="new folder for it; default: JOB-code")] = None,
) -> None:
    """Download the code that a job was submitted with."""
    from paceline.cli.code_bundle import fetch_code

    with session.client() as client:
        found = _with_spec(client, job)
        section = (found.spec or {}).get("environment", {}).get("code")
        if section is None:
            raise UsageProblem(
                f"{found.name} was submitted without its code: its ranks ran what lay on the nodes",
                "paceline submit --workdir FOLDER sends it along",
            )
        into = into or Path(f"{found.name}-code")
        files = fetch_code(client, section["bundle"], into)
    document = {"folder": str(into), "files": files, **section}
    session.emit(document, lambda: fields([("code", f"{into}, {plural(files, 'file')}"), *code_origin(section)]))


@with_session
def rerun(
    session: Session,
    job: JobRef,
    changes: Changes = None,
    name: Annotated[str | None, typer.Option(help="of the new job; default: as before")] = None,
    workdir: Workdir = None,
) -> None:
    """Submit a job again, with the same spec and the same code. --set changes fields, --workdir sends other code."""
    from paceline.cli.code_bundle import with_code
    from paceline.cli.documents import with_changes

    with session.client() as client:
        spec: dict[str, Any] = with_changes(dict(_with_spec(client, job).spec or {}), changes or [])
        spec |= {"name": name} if name is not None else {}
        spec = with_code(client, spec, workdir) if workdir else spec
        document = client.create("/training/jobs", spec)
        new = parsed(document, Job)
        note(*warning_lines(new))
        session.emit(document, lambda: fields([*summary(new), ("page", client.job_page(new.id))]))
        session.next_steps(f"paceline logs -f {new.name}", f"paceline compare {job} {new.id}")


def _with_spec(client: RestClient, reference: str) -> Job:
    found = client.job(client.job_id(reference))
    if found.spec is None:
        raise UsageProblem(f"the spec of {found.name} cannot be read by this coordinator: {found.unreadable}")
    return found
