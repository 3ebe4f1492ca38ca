"""Administration from the coordinator's own machine: needs no key, only its database. Prints one JSON document.

python -m paceline.api.admin migrate | login-link | api-key | join-token | after-restore | backup DIR | restore DIR | db-check [--backup DIR]

Exit codes: 1 error (also: a database that is not well), 2 not on this kind of database, 6 something is in the way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import identity
from paceline.api.errors import ProblemError
from paceline.api.schemas.common import Actor
from paceline.api.services.identity import accounts
from paceline.api.services.identity.first_credentials import TOKEN_LIFETIME
from paceline.api.services.nodes import joining
from paceline.api.settings import Settings
from paceline.db import backup
from paceline.db.errors import BackupExistsError, DatabaseError, FolderInUseError, UnsupportedDatabaseError
from paceline.db.fencing import fence_generations
from paceline.db.migrate import upgrade_all
from paceline.db.models.events import ADMIN_COMMAND_ID
from paceline.db.repositories import identity as repository
from paceline.db.session import open_databases
from paceline.monitoring.files import write_durably

ADMIN_COMMAND = Actor(kind="system", id=ADMIN_COMMAND_ID, name="the administration command")
EXIT_CODES: dict[type[Exception], int] = {UnsupportedDatabaseError: 2, BackupExistsError: 6, FolderInUseError: 6}


async def login_link(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    user = await identity.first_admin(session, arguments.user, now)
    token, expires = await accounts.create_login_link(session, ADMIN_COMMAND, user, now, "admin_command")
    return {"url": identity.login_url(arguments.base_url, token), "user": user.name, "expires_at": expires.isoformat()}


async def api_key(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    user = await identity.first_admin(session, arguments.user, now)
    if arguments.replace:
        await accounts.revoke_keys_named(session, user, arguments.name, ADMIN_COMMAND, now)
    key, row = await accounts.create_named_key(session, user, name=arguments.name, role=arguments.role, now=now, expires_at=None)
    message = f"the administration command created API key {row.prefix}... ({row.name}) for {user.name}"
    await accounts.record(session, ADMIN_COMMAND, "key.created", "admin_command", message, row.id, now)
    return {"key": key, "id": row.id, "name": row.name, "role": row.role, "user": user.name}


async def join_token(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    """Make tokens. Raises ValueError where there are more or fewer names than tokens."""
    tokens, authority = list[str](), joining.own_authority(arguments.settings)
    names = arguments.names or [str(number) for number in range(1, arguments.count + 1)]
    if len(names) != arguments.count:
        raise ValueError(f"--names has {len(names)} names for {arguments.count} tokens; give one for each, as --count says")
    for name in names:
        if arguments.unless_present and await repository.present_node(session, name) is not None:
            tokens.append("")
            continue
        token, _expires = await joining.create_join_token(session, created_by="admin-command", now=now, lifetime=TOKEN_LIFETIME)
        tokens.append(joining.pinned(token, arguments.settings.public_url, authority))
    if arguments.into is not None:
        for name, token in zip(names, tokens, strict=True):
            write_durably(arguments.into / Path(name).name, token.encode(), mode=0o600)
    return {"token": tokens[0], "tokens": tokens, "expires_at": (now + TOKEN_LIFETIME).isoformat()}


async def migrated(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    return {"migrated": True}


async def fenced(session: AsyncSession, arguments: argparse.Namespace, now: datetime) -> dict[str, Any]:
    connection = await session.connection()
    return {"jobs": await connection.run_sync(fence_generations, now)}


async def back_up(settings: Settings, arguments: argparse.Namespace) -> dict[str, Any]:
    backup.require_sqlite(settings.database_url, f"pg_dump --format=custom --file={arguments.folder} DATABASE_URL")
    manifest = await asyncio.to_thread(backup.back_up, settings.data, arguments.folder)
    return {"folder": str(arguments.folder.absolute()), **msgspec.to_builtins(manifest)}


async def restore(settings: Settings, arguments: argparse.Namespace) -> dict[str, Any]:
    way_out = f"stop the coordinators, pg_restore --clean --dbname=DATABASE_URL {arguments.folder}, then 'python -m paceline.api.admin after-restore'"
    backup.require_sqlite(settings.database_url, way_out)
    aside = await asyncio.to_thread(backup.restore, arguments.folder, settings.data, force=arguments.force)
    return {"data": str(settings.data.absolute()), "moved_aside": str(aside.absolute()) if aside else None}


async def check(settings: Settings, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.backup is not None:
        return _health(await asyncio.to_thread(backup.check_backup, arguments.backup))
    backup.require_sqlite(
        settings.database_url, "pg_amcheck checks its files; 'python -m paceline.api.admin migrate' says whether its schema is known"
    )
    return _health(await asyncio.to_thread(backup.check, settings.data))


def _health(found: list[backup.Health]) -> dict[str, Any]:
    return {"well": not any(each.problems for each in found), "files": msgspec.to_builtins(found)}


async def run(arguments: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Run one action. Actions that need a session migrate first, so that they also work before the coordinator's first start."""
    if hasattr(arguments, "on_files"):
        files: dict[str, Any] = await arguments.on_files(settings, arguments)
        return files
    arguments.settings = settings
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
    parser = argparse.ArgumentParser(prog="python -m paceline.api.admin", description="administration from the coordinator's own machine")
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
    key.add_argument("--replace", action="store_true", help="revoke the user's other keys of this name, and what they made")
    key.set_defaults(action=api_key)
    token = actions.add_parser("join-token", help="single-use tokens for new nodes")
    token.add_argument("--count", type=int, default=1, choices=range(1, 1001), metavar="1..1000")
    token.add_argument("--into", type=Path, metavar="DIR", help="write each into a file of this folder as well, for its owner only")
    token.add_argument("--names", type=lambda text: text.split(","), metavar="NAME,...", help="of those files (default: 1, 2, ...)")
    token.add_argument("--unless-present", action="store_true", help="leave the file of a name empty that a node has already")
    token.set_defaults(action=join_token)
    fencing = actions.add_parser("after-restore", help="after pg_restore, before a coordinator starts: end what ran since the backup")
    fencing.set_defaults(action=fenced)
    _add_file_actions(actions)
    return parser.parse_args(arguments)


def _add_file_actions(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    saving = actions.add_parser("backup", help="copy both SQLite files at one moment, into a new folder")
    saving.add_argument("folder", type=Path)
    saving.set_defaults(on_files=back_up)
    restoring = actions.add_parser("restore", help="put a backup into the data folder")
    restoring.add_argument("folder", type=Path)
    restoring.add_argument("--force", action="store_true", help="move the databases that are there aside")
    restoring.set_defaults(on_files=restore)
    checking = actions.add_parser("db-check", help="read every page, and say what is wrong")
    checking.add_argument("--backup", type=Path, metavar="DIR", help="of this backup, not of the data folder")
    checking.set_defaults(on_files=check)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        document = asyncio.run(run(parse(arguments), Settings()))
    except (ProblemError, DatabaseError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)
    print(json.dumps(document))
    return 0 if document.get("well", True) else 1


if __name__ == "__main__":
    sys.exit(main())
