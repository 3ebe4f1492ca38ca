"""Secrets of projects, and the key that they are sealed with."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0028"
down_revision = "control_0027"
branch_labels = None
depends_on = None

CURRENT = sa.text("retired_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("sealed", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_by_id", sa.String(), nullable=True),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("updated_by", sa.String(), nullable=False),
        sa.Column("updated_at", types.UtcDateTime(), nullable=False),
        sa.Column("retired_at", types.UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
    )
    op.create_index("ix_secrets_current", "secrets", ["project", "name"], unique=True, sqlite_where=CURRENT, postgresql_where=CURRENT)
    op.create_table(
        "vault",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_vault")),
    )


def downgrade() -> None:
    op.drop_table("vault")
    op.drop_index("ix_secrets_current", table_name="secrets")
    op.drop_table("secrets")
