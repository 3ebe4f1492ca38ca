"""What can go wrong below the queries.

DatabaseError
├── UnsupportedDatabaseError    a URL for a database we do not speak
├── DatabaseBusyError           the one writer's turn did not come in time
└── MigrationError              the schema is newer than this program, or a migration failed
"""

from __future__ import annotations


class DatabaseError(Exception):
    """Any of the below."""


class UnsupportedDatabaseError(DatabaseError):
    pass


class DatabaseBusyError(DatabaseError):
    pass


class MigrationError(DatabaseError):
    pass
