"""The very first start: no user can sign in yet, so a single-use login link is printed, never a lasting secret."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.services.identity import accounts
from paceline.api.settings import Settings
from paceline.db.models.identity import UserRow

DEFAULT_PORT = 8000
#: Where `npm run dev` serves the dashboard, as `dashboard/vite.config.ts` says.
DEV_SERVER = "http://localhost:3000"


async def welcome(services: Services) -> None:
    """Create the admin and print the link, if there is no user at all. Of replicas that start together one does."""
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
    here = local_url(services.settings)
    is_built = (services.settings.dashboard / "index.html").is_file()
    print(*greeting(services.settings.public_url, here, token, expires, is_built=is_built), sep="\n", file=sys.stderr, flush=True)


def local_url(settings: Settings) -> str:
    """Where this coordinator listens, for who is on this machine."""
    return f"http://127.0.0.1:{settings.uvicorn_port or port_of(sys.argv) or DEFAULT_PORT}"


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
