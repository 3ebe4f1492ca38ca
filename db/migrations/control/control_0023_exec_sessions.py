"""Open exec sessions: commands beside ranks."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0023"
down_revision = "control_0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "exec_sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("generation", types.BigInt, nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("via", sa.String(), nullable=True),
        sa.Column("command", sa.String(), nullable=False),
        sa.Column("asked", sa.Boolean(), nullable=False),
        sa.Column("refusal", sa.String(), nullable=True),
        sa.Column("opened_at", types.UtcDateTime(), nullable=False),
        sa.Column("seen_at", types.UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exec_sessions")),
    )
    op.create_index(op.f("ix_exec_sessions_node_id"), "exec_sessions", ["node_id"])
    op.create_index(op.f("ix_exec_sessions_user_id"), "exec_sessions", ["user_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_exec_sessions_user_id"), table_name="exec_sessions")
    op.drop_index(op.f("ix_exec_sessions_node_id"), table_name="exec_sessions")
    op.drop_table("exec_sessions")
