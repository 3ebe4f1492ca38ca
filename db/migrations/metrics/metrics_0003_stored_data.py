"""How much data is stored of each job, and when it arrived."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "metrics_0003"
down_revision = "metrics_0002"
branch_labels = None
depends_on = None

#: (kind, table, space of a row with its indexes, which rows); as `cluster.history.storage` has it.
TALLIES = (
    ("points", "metric_records", '150 + length("values")', "1 = 1"),
    ("lines", "log_lines", "100 + length(text)", "1 = 1"),
    *((f"curves_{level}", "metric_rollups", "120", f"level = {level}") for level in (10, 100, 1_000, 10_000, 100_000, 1_000_000)),
)


def upgrade() -> None:
    op.create_table(
        "stored_data",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("rows", types.BigInt, nullable=False),
        sa.Column("bytes", types.BigInt, nullable=False),
        sa.Column("changed_at", types.UtcDateTime(), nullable=False),
        sa.Column("gone_rows", types.BigInt, server_default="0", nullable=False),
        sa.Column("gone_to_step", types.BigInt, nullable=True),
        sa.Column("told_at", types.UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", "kind", name=op.f("pk_stored_data")),
    )
    with op.batch_alter_table("stored_data", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_stored_data_kind_changed_at"), ["kind", "changed_at"], unique=False)
    op.create_table(
        "arrival_marks",
        sa.Column("time", types.UtcDateTime(), nullable=False),
        sa.Column("points", types.BigInt, nullable=False),
        sa.Column("lines", types.BigInt, nullable=False),
        sa.Column("events", types.BigInt, nullable=False),
        sa.PrimaryKeyConstraint("time", name=op.f("pk_arrival_marks")),
    )
    _count_what_is_there()


def _count_what_is_there() -> None:
    """Count data from before this migration as stored now: it is kept once more for as long as any data."""
    for kind, table, size, which in TALLIES:
        op.execute(
            "INSERT INTO stored_data (job_id, kind, rows, bytes, changed_at) "
            f"SELECT job_id, '{kind}', count(*), sum({size}), CURRENT_TIMESTAMP FROM {table} WHERE {which} GROUP BY job_id"
        )


def downgrade() -> None:
    op.drop_table("arrival_marks")
    op.drop_table("stored_data")
