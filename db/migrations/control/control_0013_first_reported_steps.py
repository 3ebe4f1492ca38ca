"""Generations: the first step that each generation reported."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0013"
down_revision = "control_0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("first_step", types.BigInt, nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.drop_column("first_step")
