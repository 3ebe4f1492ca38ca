"""The code that jobs are submitted with."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0022"
down_revision = "control_0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bundles",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("bytes", types.BigInt, nullable=False),
        sa.Column("unpacked_bytes", types.BigInt, nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("offered_at", types.UtcDateTime(), nullable=False),
        sa.Column("stored_at", types.UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_bundles")),
    )
    op.add_column("jobs", sa.Column("bundle", sa.String(), nullable=True))
    op.create_index("ix_jobs_bundle", "jobs", ["bundle"])


def downgrade() -> None:
    op.drop_index("ix_jobs_bundle", table_name="jobs")
    op.drop_column("jobs", "bundle")
    op.drop_table("bundles")
