"""Parked ranks, and generations that are entered at a step boundary."""

import sqlalchemy as sa
from alembic import op

revision = "control_0005"
down_revision = "control_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.add_column(_flag("at_boundary"))
    with op.batch_alter_table("ranks", schema=None) as batch_op:
        batch_op.add_column(_flag("parked"))
        batch_op.add_column(_flag("newcomer"))


def downgrade() -> None:
    with op.batch_alter_table("ranks", schema=None) as batch_op:
        batch_op.drop_column("newcomer")
        batch_op.drop_column("parked")
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.drop_column("at_boundary")


def _flag(name: str) -> "sa.Column[bool]":
    """A boolean column with a default in the database: existing rows get it, and so do rows that the version before this one writes."""
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())
