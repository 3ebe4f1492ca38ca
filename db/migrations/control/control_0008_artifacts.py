"""Artifacts, and the requests for profiler traces."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0008"
down_revision = "control_0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("generation", types.BigInt, nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("first_step", types.BigInt, nullable=False),
        sa.Column("last_step", types.BigInt, nullable=False),
        sa.Column("bytes", types.BigInt, nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("stored_at", types.UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_artifacts_job_id_jobs")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_artifacts_node_id_nodes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
        sa.UniqueConstraint("job_id", "generation", "rank", "name", name=op.f("uq_artifacts_job_id_generation_rank_name")),
    )
    with op.batch_alter_table("artifacts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_artifacts_job_id_id"), ["job_id", "id"], unique=False)

    op.create_table(
        "profile_requests",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("generation", types.BigInt, nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("ranks", types.JsonDocument, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_profile_requests_job_id_jobs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile_requests")),
    )
    with op.batch_alter_table("profile_requests", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_profile_requests_job_id_id"), ["job_id", "id"], unique=False)


def downgrade() -> None:
    op.drop_table("profile_requests")
    op.drop_table("artifacts")
