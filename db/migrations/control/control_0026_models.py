"""The registry of models."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0026"
down_revision = "control_0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "models",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("last_number", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_by_id", sa.String(), nullable=True),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )
    op.create_table(
        "model_versions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("checkpoint_id", sa.String(), nullable=True),
        sa.Column("artifact_id", sa.String(), nullable=True),
        sa.Column("path", sa.String(), nullable=True),
        sa.Column("step", types.BigInt, nullable=True),
        sa.Column("bytes", types.BigInt, nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("metrics", types.JsonDocument, nullable=False),
        sa.Column("notes", sa.String(), nullable=False),
        sa.Column("pinned_before", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_by_id", sa.String(), nullable=True),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id_models")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_model_versions_job_id_jobs")),
        sa.ForeignKeyConstraint(["checkpoint_id"], ["checkpoints.id"], name=op.f("fk_model_versions_checkpoint_id_checkpoints")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("model_id", "number", name=op.f("uq_model_versions_model_id_number")),
    )
    for column in ("checkpoint_id", "artifact_id", "job_id"):
        op.create_index(f"ix_model_versions_{column}", "model_versions", [column])
    op.create_table(
        "model_aliases",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("version_id", sa.String(), nullable=False),
        sa.Column("moved_by", sa.String(), nullable=False),
        sa.Column("moved_at", types.UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_model_aliases_model_id_models")),
        sa.ForeignKeyConstraint(["version_id"], ["model_versions.id"], name=op.f("fk_model_aliases_version_id_model_versions")),
        sa.PrimaryKeyConstraint("model_id", "alias", name=op.f("pk_model_aliases")),
    )
    op.create_index("ix_model_aliases_version_id", "model_aliases", ["version_id"])
    with op.batch_alter_table("artifacts") as table:
        table.add_column(sa.Column("held", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    with op.batch_alter_table("artifacts") as table:
        table.drop_column("held")
    op.drop_table("model_aliases")
    op.drop_table("model_versions")
    op.drop_table("models")
