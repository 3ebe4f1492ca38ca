"""Backups of the coordinator's databases, and their restoration; on the coordinator's own machine, without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.cli.commands.stack import DATA, Data
from paceline.cli.exits import ExitCode
from paceline.cli.help import CommandGroup
from paceline.cli.render.formats import quantity
from paceline.cli.render.output import Format, emit, fields, note, table
from paceline.cli.session import Json, command

#: Copying and hashing take about a second for each gigabyte and disk.
TIMEOUT_S = 3600.0

app = CommandGroup(help="Back up, restore and check the coordinator's databases on this machine.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="of the backup", show_default=False)]


@app.command("backup")
@command
def backup(folder: Folder, data: Data = DATA, json: Json = False) -> None:
    """Copy both databases, of one moment, into a new folder. The coordinator may be running."""
    document = _ask(data, "backup", str(folder.absolute()))
    files = document["files"]
    pairs = [("folder", document["folder"]), *((name, quantity(files[name]["bytes"], "B")) for name in files)]
    emit(document, Format.JSON if json else Format.TABLE, lambda: fields(pairs))
    note("checkpoints are not in it: they stay where they are, and so should their folders")


@app.command("restore")
@command
def restore(
    folder: Folder,
    force: Annotated[bool, typer.Option("--force", help="move the databases that are there aside")] = False,
    data: Data = DATA,
    json: Json = False,
) -> None:
    """Put a backup into a data folder whose coordinator is stopped."""
    document = _ask(data, "restore", str(folder.absolute()), *(["--force"] if force else []))
    pairs = [("data", document["data"]), ("moved aside", document["moved_aside"] or "nothing")]
    emit(document, Format.JSON if json else Format.TABLE, lambda: fields(pairs))
    note("jobs that ran at the backup go on from their newest checkpoints: what runs of them now is ended once the coordinator starts")


@app.command("check")
@command
def check(
    folder: Annotated[Path | None, typer.Option("--backup", metavar="DIR", help="check this backup, and its hashes, instead")] = None,
    data: Data = DATA,
    json: Json = False,
) -> None:
    """Read every page of both databases, and their references; exit 1 where something is wrong."""
    document = _ask(data, "db-check", *(["--backup", str(folder.absolute())] if folder else []))
    rows = [
        [each["file"], quantity(each["bytes"], "B"), each["revision"], "; ".join(each["problems"]) or "well"] for each in document["files"]
    ]
    emit(document, Format.JSON if json else Format.TABLE, lambda: table(["FILE", "SIZE", "REVISION", "STATE"], rows))
    if not document["well"]:
        note("use another backup" if folder else "stop the coordinator, and restore the newest backup: paceline db restore DIR --force")
        raise typer.Exit(ExitCode.ERROR)


def _ask(data: Path, *arguments: str) -> dict[str, Any]:
    from paceline.cli.local.admin import ask_admin
    from paceline.cli.local.layout import Layout

    return ask_admin(Layout.at(data).data, *arguments, timeout=TIMEOUT_S)
