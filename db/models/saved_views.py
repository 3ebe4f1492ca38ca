"""Named views of the list of jobs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import ControlBase, UtcDateTime, new_id


class SavedViewRow(ControlBase):
    """A view that everybody sees: its owner and admins change it."""

    __tablename__ = "saved_views"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str]
    query: Mapped[str]  # filters, order and columns, as the page's address has them
    created_by: Mapped[str]  # a name, for people
    created_by_id: Mapped[str | None]  # the user whose it is
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (UniqueConstraint("name"),)
