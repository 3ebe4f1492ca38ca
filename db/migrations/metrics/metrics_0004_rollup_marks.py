"""Marks of how far roll-ups have been made."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "metrics_0004"
down_revision = "metrics_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rollup_marks",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("seq", types.BigInt, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "rank", name=op.f("pk_rollup_marks")),
    )
    # Until now roll-ups were made as points were stored, so those of every point that is there are made.
    op.execute("INSERT INTO rollup_marks (job_id, rank, seq) SELECT '', -1, coalesce(max(seq), 0) FROM metric_records")


def downgrade() -> None:
    op.drop_table("rollup_marks")
