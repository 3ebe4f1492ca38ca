"""The very first start: nobody can sign in yet, so a single-use login link is printed, never a lasting secret."""

from __future__ import annotations

import sys

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from api.deps import Services
from api.services import accounts, identity
from db.models.identity import UserRow

DEFAULT_URL = "http://127.0.0.1:8000"


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
    url = identity.login_url(services.settings.public_url or DEFAULT_URL, token)
    print(f"Sign in once, until {expires:%H:%M} UTC: {url}\nAnother link: python -m api.admin login-link", file=sys.stderr, flush=True)
