"""Quiet scripts, and the Python stacks of ranks."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0015"
down_revision = "control_0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("hang", types.JsonDocument, nullable=True))
    with op.batch_alter_table("ranks", schema=None) as batch_op:
        batch_op.add_column(sa.Column("quiet_since", types.UtcDateTime(), nullable=True))
    op.create_table(
        "rank_stacks",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("generation", types.BigInt, nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("request", sa.String(), nullable=False),
        sa.Column("asked_at", types.UtcDateTime(), nullable=False),
        sa.Column("answered_at", types.UtcDateTime(), nullable=True),
        sa.Column("answer", types.JsonDocument, nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id", "generation"], ["generations.job_id", "generations.generation"], name=op.f("fk_rank_stacks_job_id_generations")
        ),
        sa.PrimaryKeyConstraint("job_id", "generation", "rank", name=op.f("pk_rank_stacks")),
    )


def downgrade() -> None:
    op.drop_table("rank_stacks")
    with op.batch_alter_table("ranks", schema=None) as batch_op:
        batch_op.drop_column("quiet_since")
    with op.batch_alter_table("generations", schema=None) as batch_op:
        batch_op.drop_column("hang")
