"""The databases that a coordinator is measured on: SQLite, and an empty one of a PostgreSQL server where one is named."""

from __future__ import annotations

import argparse
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

SQLITE, POSTGRES = "sqlite", "postgresql"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a benchmark `--databases` and `--postgres`."""
    parser.add_argument("--databases", nargs="+", choices=(SQLITE, POSTGRES), default=[SQLITE, POSTGRES])
    parser.add_argument("--postgres", default=os.environ.get("PACELINE_TEST_POSTGRES"), help="a server's URL; without it SQLite only")


def chosen(arguments: argparse.Namespace) -> list[str]:
    """The databases that can be measured: PostgreSQL only where a server is named."""
    return [name for name in arguments.databases if name == SQLITE or arguments.postgres]


@asynccontextmanager
async def database_url(name: str, server: str) -> AsyncIterator[str | None]:
    """The URL of an empty database on this server, dropped afterwards; None for SQLite, whose files lie in a coordinator's data folder."""
    if name == SQLITE:
        yield None
        return
    server, database = server.replace("+asyncpg", ""), f"paceline_bench_{uuid.uuid4().hex[:8]}"
    connection = await asyncpg.connect(server, timeout=10)
    try:
        await connection.execute(f'CREATE DATABASE "{database}"')
        yield f"{server.rpartition('/')[0]}/{database}"
    finally:
        await connection.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')
        await connection.close()
