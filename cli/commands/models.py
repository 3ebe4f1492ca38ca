"""The registry of models: versions that are checkpoints or files of jobs, and aliases that move."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import ModelVersion, RegisteredModel
from paceline.cli.commands.artifacts import Into, writable
from paceline.cli.errors import NotThereError, OutputError, UsageProblem
from paceline.cli.help import CommandGroup
from paceline.cli.questions import Yes, confirm
from paceline.cli.render import formats
from paceline.cli.render.output import table
from paceline.cli.session import Session, with_session

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

app = CommandGroup(help="List, register and download models: versions of checkpoints or files, with aliases such as production.")

ModelRef = Annotated[
    str, typer.Argument(metavar="MODEL", help="name, name:version or name@alias; a name alone is its newest version", show_default=False)
]
ModelName = Annotated[str, typer.Argument(metavar="NAME", help="of the model", show_default=False)]


@app.command("list")
@with_session
def list_models(session: Session) -> None:
    """List all registered models."""
    with session.client() as client:
        documents = client.pages("/models")
    session.emit(documents, lambda: _table_of_models([parsed(document, RegisteredModel) for document in documents]))
    if documents:
        session.next_steps(f"paceline models show {documents[0]['name']}")


@app.command()
@with_session
def show(session: Session, name: ModelName) -> None:
    """Show the versions of a model, and where each came from."""
    with session.client() as client:
        document = client.get(_url(name))
    session.emit(document, lambda: _table_of_versions(parsed(document, RegisteredModel).versions))
    session.next_steps(f"paceline models download {name}")


@app.command()
@with_session
def register(
    session: Session,
    name: ModelName,
    checkpoint: Annotated[str | None, typer.Option(help="id of a checkpoint", show_default=False)] = None,
    job: Annotated[str | None, typer.Option(help="job that has left the file of --path", show_default=False)] = None,
    path: Annotated[str | None, typer.Option(help="file, as 'paceline artifacts JOB' lists it", show_default=False)] = None,
    alias: Annotated[
        list[str] | None, typer.Option(metavar="ALIAS", help="alias to move to it; may be repeated", show_default=False)
    ] = None,
    notes: Annotated[str, typer.Option(help="about this version", show_default=False)] = "",
) -> None:
    """Register a checkpoint or a file of a job as the next version of a model. It is kept for as long as the version exists."""
    if (checkpoint is None) == (path is None) or (path is None) != (job is None):
        raise UsageProblem("a version is a checkpoint or a file", "give --checkpoint ID, or --job JOB with --path PATH")
    body: dict[str, object] = {"name": name, "notes": notes, "aliases": alias or []}
    with session.client() as client:
        source = {"checkpoint_id": checkpoint} if job is None else {"job_id": client.job_id(job), "path": path}
        document = client.create("/models", body | source)
    newest = parsed(document, RegisteredModel).versions[0]
    session.emit(document, lambda: ", ".join([f"{name}:{newest.number}", *(f"{name}@{each}" for each in newest.aliases)]))
    if not newest.aliases:
        session.next_steps(f"paceline models alias {name} production {newest.number}")


@app.command()
@with_session
def alias(
    session: Session,
    name: ModelName,
    alias: Annotated[str, typer.Argument(help="such as production", show_default=False)],
    version: Annotated[int | None, typer.Argument(help="version that it names from now on", show_default=False)] = None,
    remove: Annotated[bool, typer.Option("--remove", help="remove the alias; the version stays")] = False,
) -> None:
    """Point an alias to a version of a model, or remove it."""
    if (version is None) != remove:
        raise UsageProblem("an alias is moved to a version, or removed", f"paceline models alias {name} {alias} VERSION, or --remove")
    url = f"{_url(name)}/aliases/{quote(alias, safe='')}"
    with session.client() as client:
        document = client.delete(url) if remove else client.put(url, body={"version": version})
    session.emit(document, lambda: f"{name}@{alias} is {'removed' if remove else f'version {version}'}")


@app.command()
@with_session
def delete(session: Session, model: ModelRef, yes: Yes = False) -> None:
    """Delete a version of a model. Its checkpoint is left to retention again. At a terminal it asks first."""
    with session.client() as client:
        version = _version(client, model, needs_number=True)
        if not yes:
            confirm(f"Version {version.number} of model {version.model} will be deleted.", "Delete?", needs_yes=True)
        client.delete(f"{_url(version.model)}/versions/{version.number}")
    session.emit({"deleted": f"{version.model}:{version.number}"}, lambda: f"{version.model}:{version.number} is deleted")


@app.command()
@with_session
def download(
    session: Session,
    model: ModelRef,
    into: Into = Path("models"),
    whole: Annotated[bool, typer.Option("--checkpoint", help="of a checkpoint: all of it as a tar, in place of its weights")] = False,
) -> None:
    """Download a version of a model into a folder of its own: its file, or the weights of its checkpoint as safetensors."""
    from paceline.cli.file_downloads import WantedFile, download, same_content

    with session.client() as client, writable(into):
        version = _version(client, model)
        into = into / f"{version.model}-{version.number}"
        into.mkdir(exist_ok=True)
        url = version.download.removeprefix("/api/v1")
        if version.checkpoint_id is not None:
            scratch = into / f".{version.checkpoint_id}.part"
            name = client.download_named(f"{url}?format={'checkpoint' if whole else 'safetensors'}", scratch)
            target = into / name
            if target.exists() and not same_content(scratch, target):
                scratch.unlink()
                raise _changed(target)
            scratch.replace(target)
        elif whole:
            raise UsageProblem(f"{version.model}:{version.number} is a file, and --checkpoint is for checkpoints", "leave it out")
        else:
            name = PurePosixPath(version.path or version.model).name
            wanted = WantedFile(url, {}, version.bytes, version.sha256 or "", PurePosixPath(name))
            if wanted.is_there_otherwise(into):
                raise _changed(into / name)
            target = download(client, wanted, into)
    session.emit({"model": version.model, "version": version.number, "file": str(target)}, lambda: str(target))


def _changed(target: Path) -> OutputError:
    return OutputError(f"{target} is there and is not that of this version", "move it away, or name another folder with --into DIR")


def _url(name: str) -> str:
    return f"/models/{quote(name, safe='')}"


def _version(client: RestClient, reference: str, *, needs_number: bool = False) -> ModelVersion:
    """The version that a reference means. Raises NotThereError, and UsageProblem for a name alone where `needs_number`."""
    name, alias = reference.partition("@")[::2]
    name, number = name.partition(":")[::2]
    if needs_number and not number and not alias:
        raise UsageProblem(f"{reference!r} names no version", f"name one: {name}:1")
    versions = parsed(client.get(_url(name)), RegisteredModel).versions
    if number or alias:
        versions = [each for each in versions if (str(each.number) == number if number else alias in each.aliases)]
    if not versions:
        raise NotThereError(f"there is no version {reference!r}", f"paceline models show {name}")
    return versions[0]


def _table_of_models(models: list[RegisteredModel]) -> str:
    rows = [
        [
            each.name,
            str(len(each.versions)),
            str(each.versions[0].number) if each.versions else formats.UNKNOWN,
            ", ".join(f"{alias}={version.number}" for version in each.versions for alias in version.aliases) or formats.UNKNOWN,
            formats.age(each.versions[0].created_at) if each.versions else formats.UNKNOWN,
        ]
        for each in models
    ]
    empty = "no models; register one with 'paceline models register NAME --checkpoint ID'"
    return table(["NAME", "VERSIONS", "NEWEST", "ALIASES", "AGE"], rows, empty=empty)


def _table_of_versions(versions: list[ModelVersion]) -> str:
    rows = [
        [
            str(each.number),
            ", ".join(each.aliases) or formats.UNKNOWN,
            each.job_name,
            each.path or f"checkpoint of step {each.step}",
            formats.quantity(each.bytes, "B"),
            formats.age(each.created_at),
            each.created_by or formats.UNKNOWN,
            each.notes or formats.UNKNOWN,
        ]
        for each in versions
    ]
    return table(["VERSION", "ALIASES", "JOB", "FROM", "SIZE", "AGE", "BY", "NOTES"], rows, empty="no versions")
