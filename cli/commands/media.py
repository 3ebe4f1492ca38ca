"""Images, histograms and tables that a job's ranks have logged."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from paceline.cli.answers import parsed
from paceline.cli.api_types import JobMedia, LoggedHistogram, LoggedTable, MediaAtStep, MediaKey, MediaObject
from paceline.cli.commands.artifacts import writable
from paceline.cli.completion import JobRef
from paceline.cli.errors import UsageProblem
from paceline.cli.render import formats
from paceline.cli.render.output import table
from paceline.cli.render.sparkline import sparkline
from paceline.cli.session import Session, with_session
from paceline.monitoring.words import plural

if TYPE_CHECKING:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

HISTOGRAM_WIDTH = 32
ROWS_SHOWN = 20
#: Objects that one answer may have.
RANKS_AT_ONCE = 16
#: Characters that are written as %XX in the name of a file.
_UNFIT = re.compile(r"[^\w +,=@().-]")


@with_session
def media(
    session: Session,
    job: JobRef,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="what was logged under this name", show_default=False)] = None,
    step: Annotated[int | None, typer.Option(min=0, help="at this step; default: the newest, with --into all")] = None,
    rank: Annotated[str | None, typer.Option(help="only these ranks, e.g. 0 or 0,3")] = None,
    into: Annotated[
        Path | None, typer.Option("--into", "-d", metavar="DIR", help="download to this folder: PNG or JPEG, CSV, and JSON for histograms")
    ] = None,
) -> None:
    """List and download what a job has logged beside numbers: images, histograms and tables of `paceline.log`."""
    if key is None and step is not None:
        raise UsageProblem("--step is about one key", f"for example: paceline media {job} samples --step {step}")
    with session.client() as client:
        path = f"/training/jobs/{client.job_id(job)}/media"
        document = client.get(path, key=key)
        found = parsed(document, JobMedia)
        if into is not None:
            files = _download(client, path, _chosen(found, key, step), rank, into)
            session.emit({"folder": str(into), "files": files}, lambda: "\n".join(files) or "nothing is stored that could be downloaded")
            return
        if key is not None:
            document = client.get(f"{path}/object", key=key, step=step, rank=rank)
            session.emit(document, lambda: _step_text(parsed(document, MediaAtStep)))
            session.next_steps(f"paceline media {job} {key}{'' if step is None else f' --step {step}'} --into media")
            return
    session.emit(document, lambda: _keys_table(found.keys))
    if found.keys:
        session.next_steps(f"paceline media {job} {found.keys[0].key}")


def _chosen(found: JobMedia, key: str | None, step: int | None) -> list[tuple[MediaKey, int]]:
    """The keys and steps to download. Raises UsageProblem for a step that has none."""
    chosen = [(each, at) for each in found.keys for at in each.steps if step is None or at == step]
    if key is not None and not chosen:
        known = [at for each in found.keys for at in each.steps]
        there = f"it was logged from step {min(known)} to {max(known)}" if known else "see 'paceline media JOB' for the names"
        raise UsageProblem(f"nothing is stored under {key!r}{'' if step is None else f' at step {step}'}", there)
    return chosen


def _download(client: RestClient, path: str, chosen: Sequence[tuple[MediaKey, int]], rank: str | None, into: Path) -> list[str]:
    """Download objects into files, one for each image, histogram and table. Returns their paths."""
    files: list[str] = []
    with writable(into):
        for key, step in chosen:
            for ranks in [rank] if rank is not None else _few_at_once(key.ranks):
                found = parsed(client.get(f"{path}/object", key=key.key, kind=key.kind, step=step, rank=ranks), MediaAtStep)
                for each in found.objects:
                    files += _save(client, path, found, each, into)
    return files


def _few_at_once(ranks: Sequence[int]) -> list[str]:
    return [",".join(map(str, ranks[first : first + RANKS_AT_ONCE])) for first in range(0, len(ranks), RANKS_AT_ONCE)]


def _save(client: RestClient, path: str, found: MediaAtStep, each: MediaObject, into: Path) -> list[str]:
    stem = f"{file_place(found.key)}-step{found.step}-rank{each.rank}"
    (into / stem).parent.mkdir(parents=True, exist_ok=True)
    files = []
    for image in each.images:
        number = f"-{image.number}" if len(each.images) > 1 else ""
        file = into / f"{stem}{number}.{'jpg' if image.format == 'jpeg' else 'png'}"
        client.download(f"{path}/{each.id}/images/{image.number}", file)
        files.append(file)
    if each.histogram is not None:
        file = into / f"{stem}.json"
        file.write_bytes(msgspec.json.encode(each.histogram) + b"\n")
        files.append(file)
    if each.table is not None:
        file = into / f"{stem}.csv"
        with file.open("w", newline="", encoding="utf-8") as output:
            writer = csv.writer(output)
            writer.writerows([each.table.columns, *each.table.rows])
        files.append(file)
    return [str(file) for file in files]


def file_place(key: str) -> str:
    """A key as a path below the output folder: its slashes are folders, and no two keys have one path."""
    parts = (_UNFIT.sub(lambda unfit: "".join(f"%{byte:02X}" for byte in unfit[0].encode()), part) for part in key.split("/"))
    return "/".join(f"%2E{part[1:]}" if part.startswith(".") else part or "%" for part in parts)


def _keys_table(keys: Sequence[MediaKey]) -> str:
    rows = [
        [each.key, each.kind, str(len(each.steps)), str(each.steps[-1]), _ranks(each.ranks), formats.quantity(each.bytes, "B")]
        for each in keys
    ]
    empty = "nothing is logged beside numbers; a script does with paceline.log(step, samples=paceline.Image(array))"
    return table(["KEY", "KIND", "STEPS", "NEWEST", "RANKS", "SIZE"], rows, empty=empty)


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))


def _step_text(found: MediaAtStep) -> str:
    return "\n".join([f"{found.key} at step {found.step}", *(_object_text(each) for each in found.objects)])


def _object_text(each: MediaObject) -> str:
    if each.error is not None:
        return f"rank {each.rank}: {each.error}"
    if each.histogram is not None:
        return f"rank {each.rank}: {_histogram_text(each.histogram)}"
    if each.table is not None:
        return f"rank {each.rank}: {plural(each.table.total_rows, 'row')}\n{_table_text(each.table)}"
    rows = [[str(image.number), f"{image.width} x {image.height}", image.format, image.caption] for image in each.images]
    return f"rank {each.rank}: {plural(len(rows), 'image')}\n{table(['NUMBER', 'PIXELS', 'FORMAT', 'CAPTION'], rows, empty='')}"


def _histogram_text(found: LoggedHistogram) -> str:
    odd = [f"{number:,} {name}" for number, name in ((found.nans, "NaN"), (found.infs, "infinite")) if number]
    facts = [plural(found.values, "value"), *odd]
    if found.least is not None:
        span = f"{formats.significant(found.least)} to {formats.significant(found.most)}"
        facts += [f"{span}, mean {formats.significant(found.mean)}, std {formats.significant(found.std)}"]
        facts += [sparkline(found.counts, HISTOGRAM_WIDTH)]
    return ", ".join(facts[:-1]) + f"\n{facts[-1]}" if found.least is not None else ", ".join(facts)


def _table_text(found: LoggedTable) -> str:
    rows = [["" if cell is None else str(cell) for cell in row] for row in found.rows[:ROWS_SHOWN]]
    shown = table([column.upper() for column in found.columns], rows, empty="it has no rows")
    left = found.total_rows - len(rows)
    return f"{shown}\nand {left:,} more; all stored rows: --into DIR" if left > 0 else shown
