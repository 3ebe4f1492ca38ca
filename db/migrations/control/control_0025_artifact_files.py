"""Files of $PACELINE_ARTIFACTS: where each is in its job, and when it was changed."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0025"
down_revision = "control_0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("artifacts", sa.Column("path", sa.String(), nullable=True))
    op.add_column("artifacts", sa.Column("folder", sa.String(), nullable=True))
    op.add_column("artifacts", sa.Column("changed_ns", types.BigInt, nullable=True))
    op.create_index("ix_artifacts_job_id_folder_path", "artifacts", ["job_id", "folder", "path"])
    op.create_index("ix_artifacts_job_id_path", "artifacts", ["job_id", "path"])


def downgrade() -> None:
    op.drop_index("ix_artifacts_job_id_path", table_name="artifacts")
    op.drop_index("ix_artifacts_job_id_folder_path", table_name="artifacts")
    for name in ("changed_ns", "folder", "path"):
        op.drop_column("artifacts", name)
