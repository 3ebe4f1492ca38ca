"""Trials: the metric at the last step alone, and their speed. Stored analyses have two metrics, and are made anew."""

import sqlalchemy as sa
from alembic import op

revision = "control_0019"
down_revision = "control_0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(sa.delete(sa.table("experiment_analyses")))
    op.drop_column("trials", "best_metric")
    op.add_column("trials", sa.Column("samples_per_second", sa.Double(), nullable=True))


def downgrade() -> None:
    op.execute(sa.delete(sa.table("experiment_analyses")))
    op.drop_column("trials", "samples_per_second")
    op.add_column("trials", sa.Column("best_metric", sa.Double(), nullable=True))
