"""The very first start: no user can sign in yet, so a single-use login link is printed, never a lasting secret.

`paceline up` asks for an API key in its place, which is written to a file that the data folder's owner alone can read."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.first_key import FIRST_KEY
from paceline.api.services.identity import accounts
from paceline.db.models.identity import UserRow
from paceline.monitoring.files import write_durably

logger = logging.getLogger(__name__)
DEFAULT_PORT = 8000
#: Where `npm run dev` serves the dashboard, as `dashboard/vite.config.ts` says.
DEV_SERVER = "http://localhost:3000"


async def welcome(services: Services) -> None:
    """Create the admin and print the link, if there is no user at all. Of replicas that start together one does.

    A starter that asked for a key gets that instead, in a file of the data folder."""
    if services.settings.first_key_name:
        await _make_key(services)
    if not services.settings.print_login_link:
        return  # whoever started us makes the admin and a link, and keeps it out of our log
    try:
        async with services.write() as session:
            if await session.scalar(select(func.count()).select_from(UserRow)):
                return
            user = await identity.first_admin(session, "admin", services.now())
            token, expires = await accounts.create_login_link(session, identity.SYSTEM, user, services.now(), "first_start")
    except IntegrityError:
        return
    here = f"http://127.0.0.1:{services.settings.uvicorn_port or port_of(sys.argv) or DEFAULT_PORT}"
    is_built = (services.settings.dashboard / "index.html").is_file()
    print(*greeting(services.settings.public_url, here, token, expires, is_built=is_built), sep="\n", file=sys.stderr, flush=True)


async def _make_key(services: Services) -> None:
    """Create the admin and a key, if there is no user at all. A coordinator that dies before the file is written leaves a key that nobody has: its
    starter asks the administration command, which revokes it."""
    name, now = services.settings.first_key_name, services.now()
    try:
        async with services.write() as session:
            if await session.scalar(select(func.count()).select_from(UserRow)):
                return
            user = await identity.first_admin(session, "admin", now)
            key, row = await accounts.create_named_key(session, user, name=name, role="admin", now=now, expires_at=None)
            message = f"the first start created API key {row.prefix}... ({row.name}) for {user.name}"
            await accounts.record(session, identity.SYSTEM, "key.created", "first_start", message, row.id, now)
    except IntegrityError:
        return
    try:
        await asyncio.to_thread(_keep, services.settings.data, key)
    except OSError as error:
        logger.warning("the API key %s cannot be left in %s: %s", name, services.settings.data, error)


def _keep(data: Path, key: str) -> None:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(data / FIRST_KEY, json.dumps({"key": key}).encode(), mode=0o600)


def greeting(public_url: str, here: str, token: str, expires: datetime, *, is_built: bool) -> list[str]:
    """The lines with the login link. It names an address at which a dashboard is served: where none is built, that of `npm run dev`."""
    another = "Another link: python -m paceline.api.admin login-link"
    if is_built or public_url:
        return [f"Sign in once, until {expires:%H:%M} UTC: {identity.login_url(public_url or here, token)}", another]
    return [
        "The dashboard is not built: cd dashboard && npm install && npm run dev serves it on port 3000, npm run build at the coordinator itself.",
        f"Sign in once, until {expires:%H:%M} UTC, while npm run dev is at work: {identity.login_url(DEV_SERVER, token)}",
        f"{another} --base-url {DEV_SERVER}",
    ]


def port_of(command: Sequence[str]) -> int | None:
    """The value of `--port` in a command line, as that of uvicorn; None: it has none, or one that the system is to choose."""
    for word, following in zip(command, (*command[1:], ""), strict=True):
        given = following if word == "--port" else word.removeprefix("--port=") if word.startswith("--port=") else ""
        if given.isdecimal() and int(given) > 0:
            return int(given)
    return None
