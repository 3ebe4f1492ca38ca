"""Whether a pool has a URL of its own, or follows the coordinator's. Of pools that are there it is not known: they keep the one that they have."""

import sqlalchemy as sa
from alembic import op

revision = "control_0033"
down_revision = "control_0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("server_given", sa.Boolean(), server_default=sa.true(), nullable=False))


def downgrade() -> None:
    op.drop_column("pools", "server_given")
