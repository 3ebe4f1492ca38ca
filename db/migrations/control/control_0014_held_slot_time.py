"""Jobs: how long a job has held slots, over all generations."""

import sqlalchemy as sa
from alembic import op

revision = "control_0014"
down_revision = "control_0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("ran_seconds", sa.Double(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("jobs", "ran_seconds")
