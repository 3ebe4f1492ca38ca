"""Ranks: the key of a process that lives through several generations."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0003"
down_revision = "control_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ranks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("born_generation", types.BigInt, nullable=True))
        batch_op.add_column(sa.Column("born_rank", sa.Integer(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("ranks", schema=None) as batch_op:
        batch_op.drop_column("born_rank")
        batch_op.drop_column("born_generation")
