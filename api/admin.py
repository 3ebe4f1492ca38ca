"""Administration from the coordinator's own machine: needs no key, only its database. Prints one JSON document.

python -m api.admin migrate | login-link | api-key | join-token
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.errors import ProblemError
from api.services import identity, joining
from api.settings import Settings
from db.errors import DatabaseError
from db.migrate import upgrade_all
from db.session import open_databases

JOIN_TOKEN_LIFETIME = timedelta(hours=1)


async def login_link(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    user = await identity.first_admin(session, arguments.user, now)
    token, expires = await identity.create_login_link(session, user, now)
    return {"url": identity.login_url(arguments.base_url, token), "user": user.name, "expires_at": expires.isoformat()}


async def api_key(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    user = await identity.first_admin(session, arguments.user, now)
    key, row = await identity.create_api_key(session, user, name=arguments.name, role=arguments.role, now=now, expires_at=None)
    return {"key": key, "id": row.id, "name": row.name, "role": row.role, "user": user.name}


async def join_token(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    tokens = []
    for _ in range(arguments.count):
        token, _expires = await joining.create_join_token(session, created_by="admin-command", now=now, lifetime=JOIN_TOKEN_LIFETIME)
        tokens.append(token)
    return {"token": tokens[0], "tokens": tokens, "expires_at": (now + JOIN_TOKEN_LIFETIME).isoformat()}


async def migrated(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    return {"migrated": True}


async def run(arguments: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Every action migrates first, so that it also works before the coordinator's first start."""
    control, metrics = open_databases(settings.data, settings.database_url)
    try:
        await upgrade_all(control, metrics)
        async with control.write() as session:
            document: dict[str, Any] = await arguments.action(session, arguments, datetime.now(UTC))
            return document
    finally:
        await control.close()
        await metrics.close()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m api.admin", description="administration from the coordinator's own machine")
    actions = parser.add_subparsers(required=True)
    actions.add_parser("migrate", help="bring the database up to date").set_defaults(action=migrated)
    link = actions.add_parser("login-link", help="a single-use link to the dashboard")
    link.add_argument("--user", default="admin", help="created as admin when there is no admin yet")
    link.add_argument("--base-url", default="http://127.0.0.1:8000")
    link.set_defaults(action=login_link)
    key = actions.add_parser("api-key", help="an API key, shown once")
    key.add_argument("--name", required=True)
    key.add_argument("--user", default="admin")
    key.add_argument("--role", choices=tuple(identity.RANKING), default="admin")
    key.set_defaults(action=api_key)
    token = actions.add_parser("join-token", help="single-use tokens for new nodes")
    token.add_argument("--count", type=int, default=1, choices=range(1, 1001), metavar="1..1000")
    token.set_defaults(action=join_token)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        print(json.dumps(asyncio.run(run(parse(arguments), Settings()))))
    except (ProblemError, DatabaseError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
