"""Secrets of projects, sealed; and with which of the coordinators' keys they are."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, Index
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import ControlBase, UtcDateTime, new_id


class SecretRow(ControlBase):
    """A value of a secret. One that was replaced or deleted is *retired*: it stays sealed as long as ranks run that were given it, so that their output
    can be masked, and is given to no other."""

    __tablename__ = "secrets"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    project: Mapped[str]
    name: Mapped[str]
    sealed: Mapped[str]  # api.core.vault
    created_by: Mapped[str]
    created_by_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_by: Mapped[str]
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    retired_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


#: The values that jobs are given.
CURRENT: ColumnElement[bool] = SecretRow.retired_at.is_(None)
Index("ix_secrets_current", SecretRow.project, SecretRow.name, unique=True, sqlite_where=CURRENT, postgresql_where=CURRENT)


class VaultRow(ControlBase):
    """The key that everything is sealed with: one row, whose lock is held while something is sealed."""

    __tablename__ = "vault"

    name: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str]
