"""The one writer of the states of notifications' deliveries: each is pending, then delivered or failed for good. Its row is locked."""

from __future__ import annotations

from datetime import datetime

from paceline.db.models.notifications import DeliveryRow


def end(row: DeliveryRow, now: datetime, *, delivered: bool) -> None:
    """End a delivery, whose row is locked: no attempt follows."""
    row.state, row.finished_at = "delivered" if delivered else "failed", now
