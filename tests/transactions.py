"""Counts what a database commits while a test looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import event

from paceline.db.session import Database


@dataclass
class Commits:
    count: int = 0

    def note(self, _: object) -> None:
        self.count += 1


@contextmanager
def committed(database: Database) -> Iterator[Commits]:
    commits, engine = Commits(), database.engine.sync_engine
    event.listen(engine, "commit", commits.note)
    try:
        yield commits
    finally:
        event.remove(engine, "commit", commits.note)
