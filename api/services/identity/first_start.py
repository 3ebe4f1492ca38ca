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

DEFAULT_PORT, LOOPBACK = 8000, "127.0.0.1"
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
    settings = services.settings
    here, is_built = local_url(settings), dashboard_is_built(settings)
    print(*greeting(settings.public_url, here, token, expires, is_built=is_built), sep="\n", file=sys.stderr, flush=True)


def dashboard_is_built(settings: Settings) -> bool:
    return (settings.dashboard / "index.html").is_file()


def dashboard_address(settings: Settings) -> str:
    """Return an address at which a dashboard is served: where none is built, that of `npm run dev`, and what to type for it."""
    if settings.public_url or dashboard_is_built(settings):
        return settings.public_url or local_url(settings)
    return f"{DEV_SERVER}, while npm run dev is at work (the dashboard is not built: cd dashboard && npm install && npm run dev)"


def local_url(settings: Settings) -> str:
    """Where this coordinator listens, for a browser on this machine."""
    return f"http://{host_of(sys.argv)}:{settings.uvicorn_port or port_of(sys.argv) or DEFAULT_PORT}"


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
    return next((int(given) for given in _given(command, "--port") if given.isdecimal() and int(given) > 0), None)


def host_of(command: Sequence[str]) -> str:
    """An address of `--host` in a command line at which this machine reaches the coordinator: loopback where it listens there."""
    hosts = _given(command, "--host")
    return LOOPBACK if not hosts or {LOOPBACK, "localhost", "0.0.0.0"} & {*hosts} else hosts[0]


def _given(command: Sequence[str], option: str) -> list[str]:
    """The values of an option, written `--option VALUE` or `--option=VALUE`."""
    prefix = f"{option}="
    pairs = zip(command, (*command[1:], ""), strict=True)
    found = [
        next_word if word == option else word.removeprefix(prefix) for word, next_word in pairs if word == option or word.startswith(prefix)
    ]
    return [value for value in found if value and not value.startswith("-")]
