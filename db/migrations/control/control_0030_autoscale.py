"""Pools whose number of nodes the coordinator decides, and the node-hours that they have used."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0030"
down_revision = "control_0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("autoscale", types.JsonDocument, nullable=True))
    op.add_column("pools", sa.Column("spent", types.JsonDocument, nullable=True))


def downgrade() -> None:
    op.drop_column("pools", "spent")
    op.drop_column("pools", "autoscale")
