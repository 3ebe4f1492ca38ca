"""Tells errors of a driver that mean a database which is away or full from errors of a statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from paceline.db.errors import DatabaseAwayError

#: Result codes of SQLite: PERM, BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL.
_SQLITE = frozenset({3, 5, 6, 7, 8, 10, 13, 14, 15})
#: Classes of PostgreSQL's SQLSTATE: no connection, a transaction that lost a race, no room, an operator's intervention, a system error.
_POSTGRESQL = ("08", "40", "53", "57P", "58")
#: Where the disk under it is full: SQLite's FULL and IOERR_SHMSIZE (the file that its processes share did not fit), PostgreSQL's disk_full.
_SQLITE_FULL = frozenset({13, 4874})
_POSTGRESQL_FULL = "53100"


@contextmanager
def raising_away_errors() -> Iterator[None]:
    """A context in which a database that is away, or has no connection free, raises DatabaseAwayError; any other error stays as it is."""
    try:
        yield
    except exc.TimeoutError as error:
        raise DatabaseAwayError(
            f"every connection to the database is in use: {error.args[0] if error.args else error}; try again"
        ) from error
    except exc.DBAPIError as error:
        if not is_away(error):
            raise
        if _is_full(error):
            raise DatabaseAwayError(f"the database is full: {error.orig}; make room on the disk under it, then try again") from error
        raise DatabaseAwayError(f"the database is away: {error.orig}; try again") from error


def is_away(error: exc.DBAPIError) -> bool:
    sqlite_code = getattr(error.orig, "sqlite_errorcode", None)
    if sqlite_code is not None:
        return sqlite_code & 0xFF in _SQLITE
    state = getattr(error.orig, "sqlstate", None)
    if state:
        return str(state).startswith(_POSTGRESQL)
    return error.connection_invalidated or isinstance(error, exc.InterfaceError)


def _is_full(error: exc.DBAPIError) -> bool:
    return getattr(error.orig, "sqlite_errorcode", None) in _SQLITE_FULL or getattr(error.orig, "sqlstate", None) == _POSTGRESQL_FULL
