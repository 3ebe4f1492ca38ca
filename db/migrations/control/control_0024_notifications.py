"""Notifications: channels, rules, deliveries, conditions that last, and the cursor over the history."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0024"
down_revision = "control_0023"
branch_labels = None
depends_on = None

PENDING = sa.text("state IN ('pending') AND digest_id IS NULL")


def upgrade() -> None:
    op.create_table(
        "notification_channels",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("secret", sa.String(), nullable=True),
        sa.Column("recipients", types.JsonDocument, nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("for_members", sa.Boolean(), nullable=False),
        sa.Column("base_url", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("tokens", sa.Double(), nullable=False),
        sa.Column("tokens_at", types.UtcDateTime(), nullable=False),
        sa.Column("quiet_until", types.UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_notification_channels"),
        sa.UniqueConstraint("name", name="uq_notification_channels_name"),
    )
    op.create_table(
        "notification_rules",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("channel_id", sa.String(), nullable=False),
        sa.Column("events", types.JsonDocument, nullable=False),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("owner_id", sa.String(), nullable=True),
        sa.Column("queued_minutes", sa.Integer(), nullable=True),
        sa.Column("goodput_below", sa.Double(), nullable=True),
        sa.Column("from_seq", types.BigInt, nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_by_id", sa.String(), nullable=True),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["channel_id"], ["notification_channels.id"], name="fk_notification_rules_channel_id_notification_channels"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_notification_rules"),
    )
    op.create_index("ix_notification_rules_channel_id", "notification_rules", ["channel_id"])
    _create_deliveries()
    op.create_table(
        "notification_conditions",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("since", types.UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_notification_conditions"),
    )
    op.create_table(
        "notification_cursors",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("seq", types.BigInt, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_notification_cursors"),
    )


def _create_deliveries() -> None:
    op.create_table(
        "notification_deliveries",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("channel_id", sa.String(), nullable=False),
        sa.Column("channel_name", sa.String(), nullable=False),
        sa.Column("rule_id", sa.String(), nullable=True),
        sa.Column("fact", sa.String(), nullable=False),
        sa.Column("seq", types.BigInt, nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("message", types.JsonDocument, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", types.UtcDateTime(), nullable=False),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.Column("finished_at", types.UtcDateTime(), nullable=True),
        sa.Column("answer", sa.String(), nullable=True),
        sa.Column("digest_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_notification_deliveries"),
        sa.UniqueConstraint("rule_id", "fact", name="uq_notification_deliveries_rule_id_fact"),
    )
    op.create_index("ix_notification_deliveries_channel_id_id", "notification_deliveries", ["channel_id", "id"])
    op.create_index("ix_notification_deliveries_fact", "notification_deliveries", ["fact"])
    op.create_index("ix_notification_deliveries_digest_id", "notification_deliveries", ["digest_id"])
    op.create_index(
        "ix_notification_deliveries_pending",
        "notification_deliveries",
        ["due_at", "id"],
        sqlite_where=PENDING,
        postgresql_where=PENDING,
    )


def downgrade() -> None:
    for table in ("cursors", "conditions", "deliveries", "rules", "channels"):
        op.drop_table(f"notification_{table}")
