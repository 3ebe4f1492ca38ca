"""Tables for the readings of nodes and their cards."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "metrics_0005"
down_revision = "metrics_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_readings",
        sa.Column("seq", types.BigInt, autoincrement=True, nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("first_time", sa.Double(), nullable=False),
        sa.Column("last_time", sa.Double(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_node_readings")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_node_readings_node_id_seq"), "node_readings", ["node_id", "seq"])
    op.create_index(op.f("ix_node_readings_node_id_last_time"), "node_readings", ["node_id", "last_time"])
    op.create_index(op.f("ix_node_readings_last_time"), "node_readings", ["last_time"])
    op.create_table(
        "node_reading_rollups",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("seconds", sa.Integer(), nullable=False),
        sa.Column("start", types.BigInt, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "seconds", "start", name=op.f("pk_node_reading_rollups")),
    )
    op.create_index(op.f("ix_node_reading_rollups_seconds_start"), "node_reading_rollups", ["seconds", "start"])


def downgrade() -> None:
    op.drop_table("node_reading_rollups")
    op.drop_table("node_readings")
