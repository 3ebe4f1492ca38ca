"""The name of an API key is of one key of a user. Keys that have one name already keep it, and none of them holds it."""

import sqlalchemy as sa
from alembic import op

revision = "control_0032"
down_revision = "control_0031"
branch_labels = None
depends_on = None

HELD = sa.text("holds_name")


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("holds_name", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_index("uq_api_keys_name_while_held", "api_keys", ["user_id", "name"], unique=True, sqlite_where=HELD, postgresql_where=HELD)


def downgrade() -> None:
    op.drop_index("uq_api_keys_name_while_held", "api_keys")
    op.drop_column("api_keys", "holds_name")
