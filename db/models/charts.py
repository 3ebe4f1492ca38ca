"""Charts that the people of a project have put together."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, OrderedDocument, UtcDateTime, new_id


class ChartRow(ControlBase):
    """A chart that everybody sees in the jobs of its project. `position` orders them; `revision` is one more after each change."""

    __tablename__ = "charts"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    project: Mapped[str]
    name: Mapped[str]
    definition: Mapped[dict[str, object]] = mapped_column(OrderedDocument)  # api.schemas.charts.ChartDefinition
    position: Mapped[int] = mapped_column(BigInt)
    revision: Mapped[int] = mapped_column(BigInt)
    created_by: Mapped[str]
    created_by_id: Mapped[str | None]
    updated_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "project", "position"),)
