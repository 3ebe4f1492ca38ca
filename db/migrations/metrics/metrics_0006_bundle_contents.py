"""A table for the contents of bundles."""

import sqlalchemy as sa
from alembic import op

revision = "metrics_0006"
down_revision = "metrics_0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "bundle_chunks",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", "number", name=op.f("pk_bundle_chunks")),
    )


def downgrade() -> None:
    op.drop_table("bundle_chunks")
