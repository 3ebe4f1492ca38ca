"""The files that a job leaves in $PACELINE_ARTIFACTS: listed folder by folder, downloaded and deleted."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import msgspec
import typer

from paceline.cli import formats
from paceline.cli.answers import parsed
from paceline.cli.api_types import FolderPage, LeftFile
from paceline.cli.commands.artifacts import Into, traces, writable
from paceline.cli.commands.checkpoints import ListsByDefault
from paceline.cli.commands.jobs import JobRef
from paceline.cli.errors import ApiProblemError, NotThereError
from paceline.cli.help import CommandGroup
from paceline.cli.output import note, table
from paceline.cli.questions import Yes, confirm
from paceline.cli.session import Session, with_session
from paceline.monitoring.words import counted, plural

if TYPE_CHECKING:
    from paceline.cli.client import Document, RestClient

app = CommandGroup(
    cls=ListsByDefault,
    help="List and download the files that a job has left in $PACELINE_ARTIFACTS. 'paceline artifacts JOB' lists those of a job.",
)
app.command("traces")(traces)

PAGE = 1000
HOW_TO_LEAVE = "no files; what a rank writes to $PACELINE_ARTIFACTS, or passes to paceline.log_artifact(path), comes here"


@app.command("list")
@with_session
def list_files(
    session: Session,
    job: JobRef,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="folder, such as rank0/eval", show_default=False)] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="the files of all folders below it, too")] = False,
) -> None:
    """List the files in a folder of a job's artifacts."""
    with session.client() as client:
        job_id = client.job_id(job)
        document = _folder(client, job_id, prefix, recursive=everything)
        page = parsed(document, FolderPage)
        if page.prefix and not page.items and not page.folders:
            document["items"] = [msgspec.to_builtins(each) for each in _found(client, job_id, prefix)]  # a file, or nothing of this name
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
    from paceline.cli.file_downloads import WantedFile, download

    with session.client() as client, writable(into):
        job_id = client.job_id(job)
        found = _found(client, job_id, path)
        above = PurePosixPath(path.strip("/")).parent if path.strip("/") else PurePosixPath()
        url = f"/training/jobs/{quote(job_id, safe='')}/files/content"
        files: list[str] = []
        replaced: list[str] = []
        for each in found:
            place = PurePosixPath(each.path).relative_to(above)
            wanted = WantedFile(url, {"path": each.path}, each.bytes, each.sha256, place)
            was_otherwise = wanted.is_there_otherwise(into)
            files.append(str(download(client, wanted, into)))
            replaced += files[-1:] if was_otherwise else []
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


def _folder(client: RestClient, job_id: str, prefix: str, *, recursive: bool) -> Document:
    """A folder with all its files, whatever the number of pages."""
    url = f"/training/jobs/{quote(job_id, safe='')}/files"
    document = client.get(url, prefix=prefix, recursive=recursive, limit=PAGE)
    cursor = document["next_cursor"]
    while cursor is not None:
        page = client.get(url, prefix=prefix, recursive=recursive, limit=PAGE, cursor=cursor)
        document["items"] += page["items"]
        cursor = page["next_cursor"]
    return document | {"next_cursor": None}


def _found(client: RestClient, job_id: str, path: str) -> list[LeftFile]:
    """The files that a path means: those of a folder, or a file itself. Raises NotThereError where there are none."""
    name = path.strip("/")
    items = parsed(_folder(client, job_id, name, recursive=True), FolderPage).items
    if not items and name:
        folder = parsed(_folder(client, job_id, name.rpartition("/")[0], recursive=False), FolderPage)
        items = [each for each in folder.items if each.path == name]
    if not items:
        hint = f"'paceline artifacts {job_id}' lists what there is"
        raise NotThereError(f"there is no file {path!r}" if name else "the job has left no files", hint if name else HOW_TO_LEAVE)
    return items


def _table(page: FolderPage, *, everything: bool) -> str:
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
