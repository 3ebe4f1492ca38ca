"""What an incident cost, and the parameter hashes of checkpoints."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0006"
down_revision = "control_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.add_column(sa.Column("settled", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch_op.add_column(sa.Column("fenced_at", types.UtcDateTime(), nullable=True))
        batch_op.add_column(sa.Column("closed_at", types.UtcDateTime(), nullable=True))
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.add_column(sa.Column("parameters_sha256", sa.String(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("checkpoints", schema=None) as batch_op:
        batch_op.drop_column("parameters_sha256")
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.drop_column("closed_at")
        batch_op.drop_column("fenced_at")
        batch_op.drop_column("settled")
