"""Requests to delete the data of ended jobs."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0011"
down_revision = "control_0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "data_removals",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("asked_by", sa.String(), nullable=False),
        sa.Column("asked_at", types.UtcDateTime(), nullable=False),
        sa.Column("checkpoints", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("done_at", types.UtcDateTime(), nullable=True),
        sa.Column("bytes", types.BigInt, server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_data_removals_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_data_removals")),
    )
    with op.batch_alter_table("data_removals", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_data_removals_done_at"), ["done_at"], unique=False)


def downgrade() -> None:
    op.drop_table("data_removals")
