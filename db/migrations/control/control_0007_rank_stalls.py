"""Ranks: what a stalled rank is waiting for."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0007"
down_revision = "control_0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ranks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("stall", types.JsonDocument, nullable=True))
        batch_op.add_column(sa.Column("suspended", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("ranks", schema=None) as batch_op:
        batch_op.drop_column("suspended")
        batch_op.drop_column("stall")
