"""The completion of a JOB in the shell: empty, rather than an error or a wait, where the coordinator does not answer."""

from __future__ import annotations

import typer

from paceline.cli.errors import CliError
from paceline.cli.settings import resolve

ANSWER_TIMEOUT_S = 0.5  # to connect, and again to answer: a shell that waits longer seems to hang
MOST_JOBS = 200


def job_references(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the newest jobs, the newest first; ids too once something is typed."""
    from paceline.cli.client import Client  # httpx costs 100 ms: --help does without

    try:
        with Client(resolve(context.params.get("server"), context.params.get("api_key")), ANSWER_TIMEOUT_S) as client:
            jobs = client.get("/training/jobs", limit=MOST_JOBS)["items"]
    except CliError:
        return []
    names = [str(job["name"]) for job in jobs]
    ids = [str(job["id"]) for job in jobs] if incomplete else []
    return [reference for reference in dict.fromkeys(names + ids) if reference.startswith(incomplete)]
