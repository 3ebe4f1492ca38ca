"""Pools, the nodes that their providers are to start, and where each node came from."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0029"
down_revision = "control_0028"
branch_labels = None
depends_on = None

OPEN = sa.text("state NOT IN ('ended', 'failed')")


def upgrade() -> None:
    op.create_table(
        "pools",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("settings", types.JsonDocument, nullable=False),
        sa.Column("min_nodes", sa.Integer(), nullable=False),
        sa.Column("max_nodes", sa.Integer(), nullable=False),
        sa.Column("labels", types.JsonDocument, nullable=False),
        sa.Column("slots", sa.Integer(), nullable=True),
        sa.Column("spot", sa.Boolean(), nullable=False),
        sa.Column("server", sa.String(), nullable=False),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("updated_at", types.UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_pools")),
    )
    op.create_table(
        "launches",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=True),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("settings", types.JsonDocument, nullable=False),
        sa.Column("labels", types.JsonDocument, nullable=False),
        sa.Column("slots", sa.Integer(), nullable=True),
        sa.Column("server", sa.String(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_since", types.UtcDateTime(), nullable=False),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("remedy", sa.String(), nullable=False),
        sa.Column("failure", sa.String(), nullable=False),
        sa.Column("handle", sa.String(), nullable=True),
        sa.Column("node_id", sa.String(), nullable=True),
        sa.Column("ends_at", types.UtcDateTime(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("asked", sa.Boolean(), nullable=False),
        sa.Column("next_look_at", types.UtcDateTime(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=False),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("ended_at", types.UtcDateTime(), nullable=True),
        sa.Column("version", types.BigInt, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_launches")),
    )
    op.create_index("ix_launches_node_id", "launches", ["node_id"])
    op.create_index("ix_launches_ended_at", "launches", ["ended_at"])
    op.create_index("uq_launches_name_while_open", "launches", ["name"], unique=True, sqlite_where=OPEN, postgresql_where=OPEN)
    op.create_index("ix_launches_due", "launches", ["next_look_at"], sqlite_where=OPEN, postgresql_where=OPEN)
    op.add_column("nodes", sa.Column("provider", sa.String(), nullable=False, server_default="manual"))
    op.add_column("nodes", sa.Column("pool", sa.String(), nullable=True))
    op.add_column("nodes", sa.Column("handle", sa.String(), nullable=True))
    op.add_column("join_tokens", sa.Column("launch_id", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("join_tokens", "launch_id")
    for name in ("handle", "pool", "provider"):
        op.drop_column("nodes", name)
    op.drop_table("launches")
    op.drop_table("pools")
