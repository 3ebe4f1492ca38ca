"""Taints of nodes that an admin has set."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0016"
down_revision = "control_0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.add_column(sa.Column("taints", types.JsonDocument, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_column("taints")
