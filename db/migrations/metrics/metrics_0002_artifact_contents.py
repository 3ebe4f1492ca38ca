"""Tables for the contents of artifacts."""

import sqlalchemy as sa
from alembic import op

revision = "metrics_0002"
down_revision = "metrics_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "artifact_chunks",
        sa.Column("artifact_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("artifact_id", "number", name=op.f("pk_artifact_chunks")),
    )


def downgrade() -> None:
    op.drop_table("artifact_chunks")
