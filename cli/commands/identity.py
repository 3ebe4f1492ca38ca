"""Signing in: stored keys, and login links for the dashboard."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from paceline.cli.errors import ApiProblemError, CliError, NotBelievedError, UnreachableError, UsageProblem
from paceline.cli.questions import confirm
from paceline.cli.render.output import fields
from paceline.cli.session import Session, with_session
from paceline.cli.settings import DEFAULT_CONTEXT, ClientSettings, Setting, context_file, of_stack, store, use_context


@with_session
def login(
    session: Session,
    data: Annotated[
        Path | None, typer.Option(help="data folder of a stack on this machine: its server and key are stored", show_default=False)
    ] = None,
    store_as: Annotated[
        str, typer.Option("--store-as", metavar="NAME", help="name of the context to store it as, which becomes the current one")
    ] = DEFAULT_CONTEXT,
    ca_fingerprint: Annotated[
        str | None,
        typer.Option(metavar="SHA256", help="of the server's own authority, as 'paceline up' prints it: believed without a question"),
    ] = None,
) -> None:
    """Try a key, and store it with its server for this user. The key is that of --api-key, PACELINE_API_KEY, this folder's stack, or --data."""
    if data is not None:
        if "flag" in (session.settings.server.source, session.settings.api_key.source):
            raise UsageProblem("--data says which server and which key", "leave out --server and --api-key, or --data")
        session = replace(session, settings=of_stack(data))
    key = session.settings.key
    if key is None:
        raise UsageProblem(
            "there is no key to store", "paceline login --server URL --api-key KEY; a stack on this machine: paceline login --data FOLDER"
        )
    session = replace(session, settings=_believed(session.settings, ca_fingerprint))
    with session.client() as client:
        me = client.get("/auth/me")
    store(file := context_file(store_as), session.settings.url, key, session.settings.authority.value)
    use_context(store_as)
    session.emit(me, lambda: f"signed in to {session.settings.url} as {_identity(me)}; stored in {file}")
    session.next_steps("paceline jobs")


def _believed(settings: ClientSettings, fingerprint: str | None) -> ClientSettings:
    """The settings with the server's own authority pinned: with `fingerprint`, or after a question at a terminal. Unchanged where the
    server's certificate is believed anyhow. The key is not sent before."""
    if fingerprint is None and _is_believed(settings):
        return settings
    from paceline.tls.trust import TrustError, fingerprint_of, parse_fingerprint

    if urlsplit(settings.url).scheme != "https":
        raise UsageProblem(f"{settings.url} has no TLS, and so no authority", "leave out --ca-fingerprint, or give the https address")
    try:
        expected = parse_fingerprint(fingerprint) if fingerprint is not None else None
        authority = _fetched(settings, expected)
        if expected is None:
            _ask(settings.url, fingerprint_of(authority))
    except TrustError as error:
        raise CliError(str(error)) from error
    return replace(settings, authority=Setting(authority, "login"))


def _is_believed(settings: ClientSettings) -> bool:
    """Whether the server's certificate is of an authority that is believed here, pinned or not. Asked without the key."""
    from paceline.cli.client import RestClient

    if urlsplit(settings.url).scheme != "https":
        return True
    with RestClient(replace(settings, api_key=Setting(None, settings.api_key.source))) as client:
        try:
            client.get("/auth/me")
        except NotBelievedError:
            return False
        except ApiProblemError:  # it is asked without a key
            return True
    return True


def _fetched(settings: ClientSettings, expected: str | None) -> str:
    import httpx

    from paceline.tls.fetch import fetch_authority

    try:
        return fetch_authority(settings.url, expected)
    except httpx.HTTPError as error:
        raise UnreachableError(f"{settings.url} does not answer: {str(error) or type(error).__name__}") from error


def _ask(url: str, found: str) -> None:
    """Show the fingerprint, and ask. Without a terminal nothing is believed."""
    if not sys.stdin.isatty():
        raise CliError(
            f"{url} has an authority of its own, {found}, and there is no terminal to ask at",
            f"compare that with what 'paceline up' printed there; if it is the same, add --ca-fingerprint {found}",
        )
    confirm(
        f"{url} has an authority of its own, which this machine does not know:\n  {found}\nCompare that with the line that 'paceline up' "
        "printed on the coordinator's machine.",
        "Is it the same, and to be believed for this server from now on?",
    )


def _identity(me: Any) -> str:
    """The user, and what the key may do: an admin's key may be one of a member."""
    article = "an" if me["role"] == "admin" else "a"
    return f"{me['name']}, with a key that may do what {article} {me['role']} may"


@with_session
def login_link(session: Session, user: Annotated[str | None, typer.Option(help="name or id; default: yourself")] = None) -> None:
    """Make a single-use link that signs a browser in to the dashboard; it is shown once."""
    with session.client() as client:
        user_id = client.get("/auth/me")["user_id"] if user is None else client.user_id(user)
        document = client.create(f"/users/{user_id}/login-link", {})
    session.emit(document, lambda: fields([("open", document["url"]), ("expires", document["expires_at"])]))
