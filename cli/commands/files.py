"""The files that a job leaves in $PACELINE_ARTIFACTS: listed folder by folder, downloaded and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import FolderPage
from paceline.cli.commands.artifacts import Into, traces, writable
from paceline.cli.commands.checkpoints import ListsByDefault
from paceline.cli.completion import JobRef
from paceline.cli.errors import ApiProblemError
from paceline.cli.help import CommandGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import note, table
from paceline.cli.session import Session, with_session
from paceline.monitoring.words import counted, plural

app = CommandGroup(
    cls=ListsByDefault,
    help="List and download the files that a job has left in $PACELINE_ARTIFACTS. 'paceline artifacts JOB' lists those of a job.",
)
app.command("traces")(traces)


@app.command("list")
@with_session
def list_files(
    session: Session,
    job: JobRef,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="folder, such as rank0/eval", show_default=False)] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="the files of all folders below it, too")] = False,
) -> None:
    """List the files in a folder of a job's artifacts."""
    from paceline.cli import job_files

    with session.client() as client:
        job_id = client.job_id(job)
        document = job_files.folder(client, job_id, prefix, recursive=everything)
        page = parsed(document, FolderPage)
        if page.prefix and not page.items and not page.folders:
            found = job_files.files_at(client, job_id, prefix)  # a file, or nothing of this name
            document["items"] = [msgspec.to_builtins(each) for each in found]
            page = parsed(document, FolderPage)
    session.emit(document, lambda: _table(page, everything=everything))
    if session.for_people:
        for each in page.not_kept:
            note(f"note: {each}")
        if page.arriving:
            note(f"{plural(page.arriving, 'file')} {'is' if page.arriving == 1 else 'are'} still arriving from the nodes")
    if page.files:
        session.next_steps(" ".join(["paceline artifacts download", job, *([page.prefix] if page.prefix else [])]))


@app.command()
@with_session
def download(
    session: Session,
    job: JobRef,
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="file or folder; default: all files of the job", show_default=False)] = "",
    into: Into = Path("artifacts"),
) -> None:
    """Download a file, or a folder with all that is in it. Repeat it to go on with a download that broke off, or to get what is new."""
    from paceline.cli import job_files

    with session.client() as client, writable(into):
        found = list(job_files.download_files(client, client.job_id(job), path, into))
    files, replaced = [str(each.path) for each in found], [str(each.path) for each in found if each.replaced]
    size = formats.quantity(sum(each.bytes for each in found), "B")
    session.emit({"folder": str(into), "files": files, "replaced": replaced}, lambda: "\n".join(files))
    if session.for_people:
        note(f"{counted(len(files), 'file')}, {size}, verified")
        if replaced:
            note(f"replaced what was there otherwise: {', '.join(replaced[:5])}{' ...' if len(replaced) > 5 else ''}")


@app.command()
@with_session
def delete(
    session: Session,
    job: JobRef,
    path: Annotated[str, typer.Argument(help="the file, as 'paceline artifacts JOB' lists it", show_default=False)],
    yes: Yes = False,
) -> None:
    """Delete a file of a job's artifacts for good. At a terminal it asks first. A folder is not taken."""
    with session.client() as client:
        job_id = client.job_id(job)
        if not yes:
            confirm(f"The file {path} of job {job} will be deleted.", "Delete?", needs_yes=True)
        try:
            client.delete(f"/training/jobs/{quote(job_id, safe='')}/files", path=path)
        except ApiProblemError as error:
            if error.code == "invalid_parameter":
                error.hint = f"'paceline artifacts {job} {path} --all' lists the files below a folder"
            raise
    session.emit({"deleted": path}, lambda: f"{path} is deleted")


def _table(page: FolderPage, *, everything: bool) -> str:
    from paceline.cli.job_files import HOW_TO_LEAVE

    alone = [each.path for each in page.items] == [page.prefix]
    beginning = len(page.prefix) + 1 if page.prefix and not alone else 0
    if everything:  # the names last: one that is long moves nothing aside
        listed = [[formats.quantity(each.bytes, "B"), formats.age(each.changed_at), each.path[beginning:]] for each in page.items]
        return table(["SIZE", "AGE", "NAME"], listed, empty=HOW_TO_LEAVE)
    rows = [
        [f"{each.name}/", plural(each.files, "file"), formats.quantity(each.bytes, "B"), formats.age(each.changed_at)]
        for each in page.folders
    ]
    rows += [[each.path[beginning:], "", formats.quantity(each.bytes, "B"), formats.age(each.changed_at)] for each in page.items]
    return table(["NAME", "FILES", "SIZE", "AGE"], rows, empty=HOW_TO_LEAVE)
