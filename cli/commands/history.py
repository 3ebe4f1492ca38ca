"""The history of a job, the samples it used, and whether two runs are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import exits
from paceline.cli.answers import parsed
from paceline.cli.api_types import BundleChanges, Comparison, ComparisonReport, Incident, SampleAudit
from paceline.cli.completion import JobRef, job_references
from paceline.cli.details import incidents_table
from paceline.cli.errors import ApiProblemError, UsageProblem
from paceline.cli.render import failures, formats
from paceline.cli.render.output import note, table
from paceline.cli.session import Session, with_session
from paceline.monitoring.words import plural

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

Runs = Annotated[list[str], typer.Argument(metavar="JOB JOB...", help="ids or names", show_default=False, autocompletion=job_references)]
PAGE = 200
#: Files of two jobs' code that are listed where they differ.
MOST_FILES_TOLD = 40


@with_session
def incidents(session: Session, job: JobRef) -> None:
    """List the faults of a job: the culprit of each, how long recovery took, what was lost, what was done and why."""
    with session.client() as client:
        document = client.get(f"/training/jobs/{client.job_id(job)}/incidents")
    session.emit(document, lambda: _incidents(parsed(document, list[Incident])))


def _incidents(found: list[Incident]) -> str:
    return "\n\n".join([incidents_table(found), *(_course(each) for each in found)])


def _course(each: Incident) -> str:
    phases = ", ".join(
        f"{phase.name.replace('_', ' ')} {phase.seconds:.3f} s{' so far' if phase.under_way else ''}" for phase in each.phases
    )
    size = plural(each.old_size, "rank") if each.new_size is None else f"{each.old_size} -> {plural(each.new_size, 'rank')}"
    said = [*failures.traceback_lines(each.culprit), *failures.last_lines(each.culprit)] if each.culprit else []
    indented = [f"    {line}".rstrip() for line in said]
    return "\n".join([f"at step {each.step}, {size}: {each.what}", f"  why: {each.why}", f"  {phases}", *indented])


@with_session
def samples(
    session: Session, job: JobRef, step: Annotated[int | None, typer.Option(min=1, help="list only what this step used")] = None
) -> None:
    """Audit which samples the committed steps used. Exits 1 if one was used twice or left out."""
    with session.client() as client:
        document = _whole_audit(client, f"/training/jobs/{client.job_id(job)}/samples", step)
    audit = parsed(document, SampleAudit)
    session.emit(document, lambda: _samples(audit))
    if audit.exactly_once is False:
        raise typer.Exit(exits.ExitCode.ERROR)


def _whole_audit(client: Any, path: str, step: int | None) -> Any:
    """Every page of an audit's ranges in one document."""
    document = client.get(path, step=step, limit=PAGE)
    while document["next_cursor"] is not None:
        page = client.get(path, step=step, limit=PAGE, cursor=document["next_cursor"])
        document = {**page, "ranges": document["ranges"] + page["ranges"]}
    return document


def _samples(audit: SampleAudit) -> str:
    headers = ["GENERATION", "STEPS", "SAMPLE INDEX RANGE", "SAMPLES", "EPOCH"]
    rows = [
        [
            str(each.generation),
            f"{each.first_step} to {each.last_step}",
            f"{each.first_sample} to {each.first_sample + each.samples - 1}",
            str(each.samples),
            "-" if each.epoch is None else str(each.epoch),
        ]
        for each in audit.ranges
    ]
    verdict = "\n".join([audit.text, *audit.findings])
    return f"{verdict}\n\n{table(headers, rows)}" if rows else verdict


@with_session
def compare(session: Session, jobs: Runs) -> None:
    """Compare two runs bit for bit: losses, gradient norms, evaluations, parameters. Exits 1 if they differ."""
    with session.client() as client:
        ids = list(dict.fromkeys(client.job_id(job) for job in dict.fromkeys(jobs)))
        if len(ids) < 2:
            raise UsageProblem(
                f"{', '.join(jobs)}: that is one job, {ids[0]}; compare takes two or more",
                "jobs of one name are told apart by their ids: 'paceline jobs' lists them",
            )
        document = client.get("/training/compare", jobs=",".join(ids))
        report = parsed(document, ComparisonReport)
        for item, each in zip(document["items"], report.items, strict=True):
            item["code_changes"] = _code_changes(client, each)
    changes = [each["code_changes"] for each in document["items"]]
    session.emit(document, lambda: "\n\n".join(map(_comparison, report.items, changes)))
    if not all(each.same_run for each in report.items):
        raise typer.Exit(exits.ExitCode.ERROR)


def _code_changes(client: RestClient, each: Comparison) -> Any:
    """The files by which the code of two jobs differs. None where they have the same code, where one of them has none, and where it is not known:
    a note says why."""
    bundles = next((difference.values for difference in each.spec_differences if difference.path == "environment.code.bundle"), None)
    if bundles is None or "absent" in bundles:
        return None
    before, after = (value.strip('"') for value in bundles)
    try:
        return client.get(f"/training/bundles/{after}/changes", since=before)
    except ApiProblemError as error:
        note(f"which files of their code differ is not known: {error}")
        return None


def _changed_files(document: Any) -> str:
    """The files by which two bundles differ, a line each."""
    found = parsed(document, BundleChanges)
    marked = [*(("+", path) for path in found.added), *(("-", path) for path in found.removed), *(("~", path) for path in found.changed)]
    left_out = found.count - len(marked[:MOST_FILES_TOLD])
    more = [f"  and {plural(left_out, 'more file')}"] if left_out else []
    lines = (f"  {mark} {path}" for mark, path in marked[:MOST_FILES_TOLD])
    return "\n".join(["their code differs (+ added, - removed, ~ changed):", *lines, *more])


def _comparison(each: Comparison, changes: Any) -> str:
    rows = [
        [metric.name, str(metric.compared), str(metric.equal), formats.significant(metric.largest_relative_difference)]
        for metric in each.metrics
    ]
    blocks = [each.text]
    if rows:
        blocks.append(table(["METRIC", "COMPARED", "EQUAL", "LARGEST RELATIVE DIFFERENCE"], rows))
    if each.spec_differences:
        blocks.append("\n".join(["their specs differ:", *(f"  {difference.text}" for difference in each.spec_differences)]))
    return "\n\n".join([*blocks, *([] if changes is None else [_changed_files(changes)])])
