"""Counts what a database is asked and commits while a test looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sqlalchemy import event

from paceline.db.session import Database


@dataclass
class Commits:
    count: int = 0

    def note(self, _: object) -> None:
        self.count += 1


@dataclass
class OwnCommits(Commits):
    def note(self, _: object) -> None:
        self.count += _looking.get()


#: True in a test that looks, and in tasks that it starts; not in those that run beside it already.
_looking: ContextVar[bool] = ContextVar("looking", default=False)


@contextmanager
def committed(database: Database) -> Iterator[Commits]:
    """All commits, also those of a coordinator's tasks in the background."""
    commits = Commits()
    with _heard(database, "commit", commits.note):
        yield commits


@contextmanager
def committed_here(database: Database) -> Iterator[Commits]:
    """The commits of what the test itself calls: a coordinator in the background may write whenever it likes."""
    commits = OwnCommits()
    with _heard(database, "commit", commits.note), _from_here():
        yield commits


@contextmanager
def asked_here(database: Database) -> Iterator[list[str]]:
    """The statements of what the test itself calls, as they come."""
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if _looking.get():
            asked.append(statement)

    with _heard(database, "before_cursor_execute", note), _from_here():
        yield asked


@contextmanager
def _from_here() -> Iterator[None]:
    token = _looking.set(True)
    try:
        yield
    finally:
        _looking.reset(token)


@contextmanager
def _heard(database: Database, name: str, note: Callable[..., None]) -> Iterator[None]:
    engine = database.engine.sync_engine
    event.listen(engine, name, note)
    try:
        yield
    finally:
        event.remove(engine, name, note)
