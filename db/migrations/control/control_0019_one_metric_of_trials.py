"""Trials: the metric at the last step alone, and their speed. Stored analyses, which have two metrics, are made anew, and keep the order of their keys."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0019"
down_revision = "control_0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _empty_analyses(types.OrderedDocument)
    op.drop_column("trials", "best_metric")
    op.add_column("trials", sa.Column("samples_per_second", sa.Double(), nullable=True))


def _empty_analyses(document: Any) -> None:
    """Delete all analyses, and make their column one of this type."""
    op.execute(sa.delete(sa.table("experiment_analyses")))
    op.drop_column("experiment_analyses", "analysis")
    op.add_column("experiment_analyses", sa.Column("analysis", document, nullable=False))


def downgrade() -> None:
    _empty_analyses(types.JsonDocument)
    op.drop_column("trials", "samples_per_second")
    op.add_column("trials", sa.Column("best_metric", sa.Double(), nullable=True))
