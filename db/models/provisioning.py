"""Pools of nodes, and the nodes that their providers are to start."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Index
from sqlalchemy.orm import Mapped, mapped_column

from paceline.cluster.states import OVER_LAUNCH_STATES, LaunchState
from paceline.db.base import BigInt, ControlBase, JsonDocument, TextEnum, UtcDateTime, constants, new_id, partial_index


class PoolRow(ControlBase):
    """A pool: its provider, and how many nodes it may have. `settings`: the document of the provider's settings, `type` included."""

    __tablename__ = "pools"

    name: Mapped[str] = mapped_column(primary_key=True)
    provider: Mapped[str]
    settings: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    min_nodes: Mapped[int]
    max_nodes: Mapped[int]
    labels: Mapped[dict[str, str]] = mapped_column(JsonDocument)
    slots: Mapped[int | None]
    spot: Mapped[bool]
    #: The coordinator's URL for its nodes: its own where one was given, else that of the day on which the pool was sent.
    server: Mapped[str]
    server_given: Mapped[bool] = mapped_column(default=True)
    #: The document of its `AutoscaleSettings`; None: people alone say how many nodes it has.
    autoscale: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    #: Node-hours of the month, as `services.nodes.node_hours` counts them; None: nothing was counted yet.
    spent: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class LaunchRow(ControlBase):
    """A node that a provider is to start. It keeps its provider's settings as they were: a pool may change or go while its nodes run."""

    __tablename__ = "launches"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str]
    pool: Mapped[str | None]
    provider: Mapped[str]
    settings: Mapped[dict[str, Any]] = mapped_column(JsonDocument)
    labels: Mapped[dict[str, str]] = mapped_column(JsonDocument)
    slots: Mapped[int | None]
    server: Mapped[str]
    state: Mapped[LaunchState] = mapped_column(TextEnum(LaunchState))
    state_since: Mapped[datetime] = mapped_column(UtcDateTime)
    #: The intent: False once somebody, or the autoscaler, wants it gone.
    wanted: Mapped[bool] = mapped_column(default=True)
    reason: Mapped[str] = mapped_column(default="")
    remedy: Mapped[str] = mapped_column(default="")
    #: Why it is given up; a launch that has this ends as failed.
    failure: Mapped[str] = mapped_column(default="")
    #: The provider's own name for it; None: it has not answered.
    handle: Mapped[str | None]
    #: The node that has joined as it; it may have left, and its provider may start it again.
    node_id: Mapped[str | None]
    #: Not used any more: a later release drops the column.
    ends_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Calls of the provider, since the last one that went well.
    failures: Mapped[int] = mapped_column(default=0)
    #: Whether the provider was ever asked for it, so that something may run there although nothing is known of it.
    asked: Mapped[bool] = mapped_column(default=False)
    next_look_at: Mapped[datetime] = mapped_column(UtcDateTime)
    requested_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    version: Mapped[int] = mapped_column(BigInt, default=1)

    __table_args__ = (Index(None, "node_id"), Index(None, "ended_at"))


class WithheldRow(ControlBase):
    """A pending job that the autoscaler launches no node for, as of its last look. Only the autoscaler writes these."""

    __tablename__ = "withheld"

    job_id: Mapped[str] = mapped_column(primary_key=True)
    reason: Mapped[str]
    pools: Mapped[dict[str, str]] = mapped_column(JsonDocument)  # each pool's own reason


def still_open() -> ColumnElement[bool]:
    """The condition of the launches that are not over."""
    return LaunchRow.state.not_in(constants(*OVER_LAUNCH_STATES))


Index("uq_launches_name_while_open", LaunchRow.name, unique=True, sqlite_where=still_open(), postgresql_where=still_open())
partial_index("ix_launches_due", still_open(), LaunchRow.next_look_at)
