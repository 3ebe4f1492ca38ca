"""Pending jobs that the autoscaler launches no node for, with the reason."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0031"
down_revision = "control_0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "withheld",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("pools", types.JsonDocument, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_withheld")),
    )


def downgrade() -> None:
    op.drop_table("withheld")
