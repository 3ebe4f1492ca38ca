"""Requests for gradients of the next step of a running job."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0034"
down_revision = "control_0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gradients_requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("generation", types.BigInt, nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("names", types.JsonDocument, nullable=False),
        sa.Column("snapshots", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_gradients_requests_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gradients_requests")),
    )
    with op.batch_alter_table("gradients_requests", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_gradients_requests_job_id_id"), ["job_id", "id"], unique=False)


def downgrade() -> None:
    op.drop_table("gradients_requests")
