"""The errors below the queries.

DatabaseError
├── UnsupportedDatabaseError    a URL of a database that is not supported
├── DatabaseBusyError           the one writer's turn did not come in time
│   └── DatabaseAwayError       it cannot be reached, is full, or every connection is in use
├── MigrationError              the schema is newer than this program, or a migration failed
├── FolderInUseError            another coordinator has the data folder
├── BackupExistsError           something is there already that a backup, or its restoring, would replace
├── BackupFailedError           a copy could not be written
└── BackupDamagedError          a backup, or the database that was to be copied, is not whole
"""

from __future__ import annotations


class DatabaseError(Exception):
    """The base of all errors below."""


class UnsupportedDatabaseError(DatabaseError):
    pass


class DatabaseBusyError(DatabaseError):
    pass


class DatabaseAwayError(DatabaseBusyError):
    pass


class MigrationError(DatabaseError):
    pass


class FolderInUseError(DatabaseError):
    pass


class BackupExistsError(DatabaseError):
    pass


class BackupFailedError(DatabaseError):
    pass


class BackupDamagedError(DatabaseError):
    pass
