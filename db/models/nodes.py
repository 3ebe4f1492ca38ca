"""The nodes: machines with an agent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from paceline.cluster.states import NodeState
from paceline.db.base import BigInt, ControlBase, JsonDocument, TextEnum, UtcDateTime, constants, new_id


class NodeRow(ControlBase):
    __tablename__ = "nodes"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str]
    state: Mapped[NodeState] = mapped_column(TextEnum(NodeState))
    state_since: Mapped[datetime] = mapped_column(UtcDateTime)
    credential_hash: Mapped[str] = mapped_column(unique=True)
    address: Mapped[str] = mapped_column(default="")
    store_port: Mapped[int] = mapped_column(default=0)
    device: Mapped[str] = mapped_column(default="cpu")
    slots: Mapped[int] = mapped_column(default=0)
    inventory: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    #: Taints that an admin has set, by key; None: those that the agent was started with.
    taints: Mapped[dict[str, str] | None] = mapped_column(JsonDocument)
    boot_id: Mapped[str] = mapped_column(default="")
    #: The connection that speaks for the node, to whichever replica: the last one that said hello.
    channel_id: Mapped[str | None]
    last_sample: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    heartbeat_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    clock_skew: Mapped[float | None]
    backlog: Mapped[int] = mapped_column(BigInt, default=0)
    desired_revision: Mapped[int] = mapped_column(BigInt, default=0)
    state_before_unreachable: Mapped[NodeState | None] = mapped_column(TextEnum(NodeState))
    leaving: Mapped[bool] = mapped_column(default=False)
    joined_at: Mapped[datetime] = mapped_column(UtcDateTime)
    #: Where it came from: `manual`, by the command that a person ran; else its pool, and the provider's own name for it.
    provider: Mapped[str] = mapped_column(default="manual", server_default="manual")
    pool: Mapped[str | None]
    handle: Mapped[str | None]
    version: Mapped[int] = mapped_column(BigInt, default=1)

    __table_args__ = (
        Index(
            "uq_nodes_name_while_present",
            "name",
            unique=True,
            sqlite_where=text("state != 'gone'"),
            postgresql_where=text("state != 'gone'"),
        ),
    )


#: Nodes that are not gone, as `uq_nodes_name_while_present` states it: loops ask for them through that index, however many are gone.
PRESENT: ColumnElement[bool] = NodeRow.state != constants("gone")[0]
