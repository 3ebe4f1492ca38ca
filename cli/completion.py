"""Completion in the shell, of what the coordinator knows: empty, rather than an error or a wait, where it does not answer."""

from __future__ import annotations

from typing import Annotated, Any

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


def node_references(context: typer.Context, incomplete: str) -> list[str]:
    """Names of nodes; ids too once something is typed."""
    return _references("/cluster/nodes", context, incomplete)


def key_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of API keys that are not revoked, each with its name."""
    keys = [key for key in _listed("/keys", context) if not key.get("revoked_at")]
    return [(str(key["id"]), str(key["name"])) for key in keys if str(key["id"]).startswith(incomplete)]


def _listed(path: str, context: typer.Context) -> list[dict[str, Any]]:
    from paceline.cli.client import RestClient  # httpx costs 100 ms: --help does without

    try:
        with RestClient(
            resolve(context.params.get("server"), context.params.get("api_key"), context=context.params.get("context_name")),
            ANSWER_TIMEOUT_S,
        ) as client:
            found: list[dict[str, Any]] = client.get(path, limit=MOST)["items"]
            return found
    except CliError:
        return []


def _references(path: str, context: typer.Context, incomplete: str) -> list[str]:
    found = _listed(path, context)
    names = [str(each["name"]) for each in found]
    ids = [str(each["id"]) for each in found] if incomplete else []
    return [reference for reference in dict.fromkeys(names + ids) if reference.startswith(incomplete)]


JobRef = Annotated[
    str, typer.Argument(metavar="JOB", help="name, id, or the beginning of an id", show_default=False, autocompletion=job_references)
]
OptionalJob = Annotated[
    str | None,
    typer.Argument(metavar="[JOB]", help="id or name; default: all jobs", show_default=False, autocompletion=job_references),
]
