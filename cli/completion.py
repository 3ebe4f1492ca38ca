"""The completion of a JOB or an EXPERIMENT in the shell: empty, rather than an error or a wait, where the coordinator does not answer."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.errors import CliError
from paceline.cli.settings import resolve

ANSWER_TIMEOUT_S = 0.5  # to connect, and again to answer: a shell that waits longer seems to hang
MOST = 200


def job_references(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the newest jobs, the newest first; ids too once something is typed."""
    return _references("/training/jobs", context, incomplete)


def experiment_references(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the newest experiments, the newest first; ids too once something is typed."""
    return _references("/experiments", context, incomplete)


def _references(path: str, context: typer.Context, incomplete: str) -> list[str]:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

    try:
        with RestClient(resolve(context.params.get("server"), context.params.get("api_key")), ANSWER_TIMEOUT_S) as client:
            found = client.get(path, limit=MOST)["items"]
    except CliError:
        return []
    names = [str(each["name"]) for each in found]
    ids = [str(each["id"]) for each in found] if incomplete else []
    return [reference for reference in dict.fromkeys(names + ids) if reference.startswith(incomplete)]


OptionalJob = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help="id or name; default: all jobs", show_default=False, autocompletion=job_references),
]
