"""Experiments: one job spec varied over a grid, run as one, analyzed and exported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import exits
from paceline.cli.answers import parsed
from paceline.cli.api_types import Experiment, ExperimentAnalysis, ExperimentPlan, ExperimentSummary, Job, Trial
from paceline.cli.commands.submit import Changes, Workdir
from paceline.cli.completion import experiment_references
from paceline.cli.errors import ApiProblemError
from paceline.cli.experiment_exports import FORMATS, ExportedFigure, download_export, export_format
from paceline.cli.help import CommandGroup
from paceline.cli.job_changes import change_text
from paceline.cli.questions import Yes, can_ask, confirm
from paceline.cli.render.experiment_tables import counts_text, details, list_table, plan_report, report, trials_table
from paceline.cli.render.output import note
from paceline.cli.session import Session, with_session
from paceline.monitoring.words import plural

if TYPE_CHECKING:
    from paceline.cli.client import RestClient
    from paceline.cli.documents import SpecReader

app = CommandGroup(help="Vary a job spec over a grid, and analyze what comes of it.", no_args_is_help=True)

Spec = Annotated[str, typer.Argument(metavar="FILE", help="experiment in YAML or JSON; '-' reads stdin", show_default=False)]
Reference = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT", help="name, id, or the beginning of an id", show_default=False, autocompletion=experiment_references
    ),
]


@app.command()
@with_session
def run(
    session: Session,
    file: Spec,
    changes: Changes = None,
    workdir: Workdir = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", "-f", help="tell of its trials until it ends, then what they say")] = True,
    yes: Yes = False,
) -> None:
    """Run the experiment in FILE: its trials are ordinary jobs. A second time, only what is missing runs.

    At a terminal it asks before it cancels trials that FILE has no more. Ctrl-C stops following, not the experiment.
    Exit codes: 0 ended, 10 no trial completed and some failed, 11 cancelled.
    """
    from paceline.cli.documents import whole_refusals

    with session.client() as client:
        with whole_refusals(client, "/experiments/plan") as reader:
            document = _post(client, _document(client, reader, file, changes, workdir), asks=can_ask() and not yes)
        experiment = parsed(document, Experiment)
        if not follow:
            session.emit(document, lambda: details(experiment, client.experiment_page(experiment.id)))
            session.next_steps(f"paceline experiment show {experiment.name}", f"paceline experiment trials {experiment.name}")
            return
        counts = counts_text(experiment.trials) if experiment.trials else ""
        note(
            f"{experiment.name} ({experiment.id}): {counts}; {client.experiment_page(experiment.id)}",
            "Ctrl-C stops following, not the experiment",
        )
        _follow_to_end(session, client, experiment)


def _post(client: RestClient, spec: dict[str, Any], *, asks: bool) -> Any:
    """Post the experiment `spec`. `asks`: ask first where that cancels trials which the experiment of this name has and `spec` lacks."""
    try:
        return client.create("/experiments", spec, only_new=asks)
    except ApiProblemError as error:
        if error.code != "already_exists" or not asks:
            raise
    there = parsed(client.create("/experiments/plan", spec), ExperimentPlan).replaces
    if there is not None and there.cancels:
        trained = "it has" if there.cancels == 1 else "they have"
        lost = f"{plural(there.cancels, 'trial')} that this grid lacks will be cancelled, with what {trained} trained"
        owner = f" of {there.created_by.name}" if there.created_by else ""
        confirm(f"the experiment {spec.get('name')}{owner} ({there.id}) is there already: {lost}", "Replace its grid?")
    return client.create("/experiments", spec)


def _follow_to_end(session: Session, client: RestClient, experiment: Experiment) -> None:
    from paceline.cli.experiment_progress import follow_experiment

    try:
        document = follow_experiment(client, experiment.id)
    except KeyboardInterrupt:
        note("", f"detached; the experiment goes on. next: paceline experiment show {experiment.name}")
        raise typer.Exit(exits.ExitCode.INTERRUPTED) from None
    ended = parsed(document, Experiment)
    if ended.trials is not None and ended.trials.completed:
        _analyze(session, client, ended)
    else:
        session.emit(document, lambda: details(ended))
        session.next_steps(f"paceline experiment trials {ended.name}")
    raise typer.Exit(exit_code(ended))


def exit_code(experiment: Experiment) -> exits.ExitCode:
    """Trials that fail are results too: an experiment has failed where nothing else came of it."""
    if experiment.state == "cancelled":
        return exits.ExitCode.JOB_CANCELLED
    counts = experiment.trials
    failed = counts is not None and counts.failed > 0 and counts.completed == 0
    return exits.ExitCode.JOB_FAILED if failed else exits.ExitCode.DONE


@app.command()
@with_session
def plan(session: Session, file: Spec, changes: Changes = None) -> None:
    """Tell which trials the experiment in FILE would run, and which configurations are refused and why. Nothing is submitted."""
    from paceline.cli.documents import whole_refusals

    with session.client() as client, whole_refusals(client, "/experiments/plan") as reader:
        spec = _document(client, reader, file, changes)
        document = client.create("/experiments/plan", spec)
    planned = parsed(document, ExperimentPlan)
    session.emit(document, lambda: plan_report(planned, spec))
    if planned.errors:
        raise typer.Exit(exits.ExitCode.USAGE)
    session.next_steps(f"paceline experiment run {file}")


@app.command("list")
@with_session
def list_experiments(
    session: Session,
    status: Annotated[str | None, typer.Option(help="only these states, e.g. running,paused")] = None,
    project: Annotated[str | None, typer.Option(help="only this project")] = None,
    search: Annotated[str | None, typer.Option("--search", "-q", help="text in the name")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="at most this many")] = 20,
) -> None:
    """List experiments, the newest first."""
    from paceline.cli.examples import first_experiment

    with session.client() as client:
        documents = client.pages("/experiments", limit, status=status, project=project, q=search)
    empty = f"no experiments; begin with 'paceline experiment run {first_experiment() or 'FILE'}'"
    session.emit(documents, lambda: list_table([parsed(each, ExperimentSummary) for each in documents], empty))


@app.command()
@with_session
def show(session: Session, experiment: Reference) -> None:
    """Show one experiment: how far it is, what it waits for, and what its newest analysis says."""
    with session.client() as client:
        document = client.get(f"/experiments/{client.experiment_id(experiment)}")
        session.emit(document, lambda: _page(client, document))
    session.next_steps(f"paceline experiment trials {experiment}", f"paceline experiment analyze {experiment}")


def _page(client: RestClient, document: Any) -> str:
    """The head of an experiment, and below it the newest analysis, else the trials."""
    experiment = parsed(document, Experiment)
    if experiment.analyzed_at is None:
        trials = [parsed(each, Trial) for each in client.pages(f"/experiments/{experiment.id}/trials")]
        return f"{details(experiment)}\n\n{trials_table(trials)}"
    found = parsed(client.get(f"/experiments/{experiment.id}/analysis"), ExperimentAnalysis)
    return f"{details(experiment)}\n\n{report(found.analysis, _metric(experiment))}"


@app.command()
@with_session
def trials(
    session: Session,
    experiment: Reference,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="at most this many; default: all")] = None,
) -> None:
    """List the trials of an experiment, each with its values, its job, its speed and its metric."""
    with session.client() as client:
        documents = client.pages(f"/experiments/{client.experiment_id(experiment)}/trials", limit)
    session.emit(documents, lambda: trials_table([parsed(each, Trial) for each in documents]))


@app.command()
@with_session
def pause(session: Session, experiment: Reference) -> None:
    """Pause all running trials, and start no more."""
    _change(session, experiment, "pause", f"paceline experiment resume {experiment}")


@app.command()
@with_session
def resume(session: Session, experiment: Reference) -> None:
    """Go on with a paused experiment."""
    _change(session, experiment, "resume", f"paceline experiment show {experiment}")


@app.command()
@with_session
def cancel(session: Session, experiment: Reference, yes: Yes = False) -> None:
    """Stop an experiment and its running trials for good; what they have measured stays. At a terminal it asks first."""
    with session.client() as client:
        path = f"/experiments/{client.experiment_id(experiment)}"
        if not yes:
            found = parsed(client.get(path), Experiment)
            confirm(f"{found.name} ({found.id}): {found.state}; its running trials will be cancelled", "Cancel?")
        _print_change(session, client.delete(path), "cancel", f"paceline experiment analyze {experiment}")


def _change(session: Session, reference: str, verb: str, following: str) -> None:
    with session.client() as client:
        document = client.put(f"/experiments/{client.experiment_id(reference)}/{verb}")
    _print_change(session, document, verb, following)


def _print_change(session: Session, document: Any, verb: str, following: str) -> None:
    session.emit(document, lambda: change_text(parsed(document, Experiment), verb))
    session.next_steps(following)


@app.command()
@with_session
def extend(
    session: Session,
    experiment: Reference,
    steps: Annotated[int, typer.Option(min=1, help="train to this many steps, those that are done counted", show_default=False)],
    trial: Annotated[int | None, typer.Option(min=0, help="which trial; default: the best one so far")] = None,
    name: Annotated[str | None, typer.Option(help="of the new job; default: the trial's job's name with -longer")] = None,
) -> None:
    """Run a trial longer: a new job goes on from its newest checkpoint. The experiment stays as it is."""
    with session.client() as client:
        path = f"/experiments/{client.experiment_id(experiment)}/extend"
        document = client.create(path, {"steps": steps, "trial": trial, "name": name})
    job = parsed(document, Job)
    page = client.job_page(job.id)
    session.emit(document, lambda: f"{job.name}: goes on from the newest checkpoint of its trial, to step {steps}\npage  {page}")
    session.next_steps(f"paceline logs -f {job.name}", f"paceline show {job.name}")


@app.command()
@with_session
def analyze(session: Session, experiment: Reference) -> None:
    """Analyze what the trials have measured by now: a table of all configurations, and what follows from it in sentences."""
    with session.client() as client:
        _analyze(session, client, parsed(client.get(f"/experiments/{client.experiment_id(experiment)}"), Experiment))


def _analyze(session: Session, client: RestClient, experiment: Experiment) -> None:
    document = client.create(f"/experiments/{experiment.id}/analyze", None)
    session.emit(document, lambda: report(parsed(document, ExperimentAnalysis).analysis, _metric(experiment)))
    session.next_steps(f"paceline experiment export {experiment.name} report.html")


def _metric(experiment: Experiment) -> str:
    return str((experiment.spec.get("metric") or {}).get("name", "loss"))


@app.command()
@with_session
def export(
    session: Session,
    experiment: Reference,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="default: EXPERIMENT.html", show_default=False)] = None,
    form: Annotated[str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}; default: as FILE ends")] = None,
    figure: Annotated[str | None, typer.Option(help="which figure, for svg and png")] = None,
    x: Annotated[str | None, typer.Option("--x", metavar="AXIS", help="of the heat map: the axis across, such as world_size")] = None,
    y: Annotated[str | None, typer.Option("--y", metavar="AXIS", help="of the heat map: the axis down")] = None,
    value: Annotated[str | None, typer.Option(metavar="FIGURE", help="of the heat map: such as samples_per_second")] = None,
) -> None:
    """Write the newest analysis to FILE: one HTML page with everything in it, Markdown, CSV, JSON, or one figure as SVG or PNG."""
    target = file or Path(f"{experiment}.{form or 'html'}")
    chosen = export_format(target, form, figure)
    with session.client() as client:
        try:
            size = download_export(client, client.experiment_id(experiment), target, chosen, ExportedFigure(figure, x, y, value))
        except ApiProblemError as error:
            if error.code == "not_analyzed":
                error.hint = f"paceline experiment analyze {experiment}"
            raise
    session.emit({"file": str(target), "format": chosen, "bytes": size}, lambda: str(target))


def _document(client: RestClient, reader: SpecReader, file: str, changes: list[str] | None, workdir: Path | None = None) -> dict[str, Any]:
    """The experiment in the file at `file`, with the relative paths of its job found from the file's folder, and the requirements files read; or with the
    folder `workdir`, sent along once, as the code of all its trials."""
    from paceline.cli.code_bundle import with_code
    from paceline.cli.documents import KEYED_BY_PATH
    from paceline.cli.job_folder import in_its_folder, require_files
    from paceline.cli.requirement_files import with_requirements

    document = reader.read(file, changes or [], KEYED_BY_PATH)
    job = document.get("job")
    if not isinstance(job, dict):
        return document
    if workdir is not None:
        return {**document, "job": with_code(client, job, workdir)}
    job = in_its_folder(job, file)
    require_files(client, {"name": document.get("name"), **job}, file)
    return {**document, "job": with_requirements(job, file)}
