"""The owner of each job, and the key that made each key."""

import sqlalchemy as sa
from alembic import op

revision = "control_0012"
down_revision = "control_0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("created_by_id", sa.String(), nullable=True))
    # Names of users are unique and never change, so a name says who it was.
    op.execute("UPDATE jobs SET created_by_id = (SELECT users.id FROM users WHERE users.name = jobs.created_by)")
    op.add_column("api_keys", sa.Column("parent_id", sa.String(), nullable=True))
    op.create_index("ix_api_keys_parent_id", "api_keys", ["parent_id"])


def downgrade() -> None:
    op.drop_index("ix_api_keys_parent_id", table_name="api_keys")
    op.drop_column("api_keys", "parent_id")
    op.drop_column("jobs", "created_by_id")
