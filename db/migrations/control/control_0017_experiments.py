"""Experiments, their trials and their newest analyses."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0017"
down_revision = "control_0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "experiments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("labels", types.JsonDocument, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("spec", types.OrderedDocument, nullable=False),
        sa.Column("axes", types.JsonDocument, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_by_id", sa.String(), nullable=True),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("state_since", types.UtcDateTime(), nullable=False),
        sa.Column("ended_at", types.UtcDateTime(), nullable=True),
        sa.Column("state_why", sa.String(), server_default="", nullable=False),
        sa.Column("ran_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("former_slot_seconds", sa.Double(), server_default="0", nullable=False),
        sa.Column("settled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("best_trial", sa.Integer(), nullable=True),
        sa.Column("best_metric", sa.Double(), nullable=True),
        sa.Column("version", types.BigInt, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
        sa.UniqueConstraint("project", "name", name=op.f("uq_experiments_project_name")),
    )
    with op.batch_alter_table("experiments", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_experiments_created_at_id"), ["created_at", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_experiments_name_id"), ["name", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_experiments_settled"), ["settled"], unique=False)

    op.create_table(
        "experiment_analyses",
        sa.Column("experiment_id", sa.String(), nullable=False),
        sa.Column("made_at", types.UtcDateTime(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("analysis", types.JsonDocument, nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_experiment_analyses_experiment_id_experiments")),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_experiment_analyses")),
    )
    op.create_table(
        "trials",
        sa.Column("experiment_id", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("configuration", sa.Integer(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("values", types.OrderedDocument, nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("baseline", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("document", types.OrderedDocument, nullable=False),
        sa.Column("refusal", sa.String(), nullable=True),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("in_grid", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("reused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("cancelled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("pruned", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("paused_for", sa.String(), nullable=True),
        sa.Column("rungs", types.JsonDocument, nullable=False),
        sa.Column("metric", sa.Double(), nullable=True),
        sa.Column("best_metric", sa.Double(), nullable=True),
        sa.Column("metric_step", types.BigInt, server_default="0", nullable=False),
        sa.Column("metric_is_final", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["experiment_id"], ["experiments.id"], name=op.f("fk_trials_experiment_id_experiments")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_trials_job_id_jobs")),
        sa.PrimaryKeyConstraint("experiment_id", "index", name=op.f("pk_trials")),
        sa.UniqueConstraint("experiment_id", "key", name=op.f("uq_trials_experiment_id_key")),
    )
    with op.batch_alter_table("trials", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_trials_job_id"), ["job_id"], unique=False)


def downgrade() -> None:
    op.drop_table("trials")
    op.drop_table("experiment_analyses")
    op.drop_table("experiments")
