"""Checkpoints: the time that a save took."""

import sqlalchemy as sa
from alembic import op

revision = "control_0009"
down_revision = "control_0008"
branch_labels = None
depends_on = None

COLUMNS = ("stall_seconds", "write_seconds", "slowdown")


def upgrade() -> None:
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        for name in COLUMNS:
            batch_op.add_column(sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        for name in reversed(COLUMNS):
            batch_op.drop_column(name)
