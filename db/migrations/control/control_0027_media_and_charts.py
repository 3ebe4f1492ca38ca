"""Artifacts: under which key a logged image, histogram or table was logged; and the charts of projects."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0027"
down_revision = "control_0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("artifacts", sa.Column("media_key", sa.String(), nullable=True))
    op.add_column("artifacts", sa.Column("media_kind", sa.String(), nullable=True))
    op.add_column("artifacts", sa.Column("media_count", types.BigInt, nullable=True))
    op.create_index(op.f("ix_artifacts_job_id_media_key_first_step"), "artifacts", ["job_id", "media_key", "first_step"], unique=False)
    op.create_table(
        "charts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("definition", types.OrderedDocument, nullable=False),
        sa.Column("position", types.BigInt, nullable=False),
        sa.Column("revision", types.BigInt, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_by_id", sa.String(), nullable=True),
        sa.Column("updated_by", sa.String(), nullable=False),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("updated_at", types.UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_charts")),
    )
    op.create_index(op.f("ix_charts_project_position"), "charts", ["project", "position"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_charts_project_position"), table_name="charts")
    op.drop_table("charts")
    op.drop_index(op.f("ix_artifacts_job_id_media_key_first_step"), table_name="artifacts")
    op.drop_column("artifacts", "media_count")
    op.drop_column("artifacts", "media_kind")
    op.drop_column("artifacts", "media_key")
