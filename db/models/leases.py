"""The leases: the process that runs each loop."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import ControlBase, UtcDateTime


class LeaseRow(ControlBase):
    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
