"""Where sessions and changes come from, what signed a session in, when a user was last active, and who a user is at an OpenID provider."""

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0021"
down_revision = "control_0020"
branch_labels = None
depends_on = None

BY_PEOPLE = sa.text("actor_kind IN ('user') OR actor_id IN ('admin-command')")


def upgrade() -> None:
    op.add_column("users", sa.Column("last_active_at", types.UtcDateTime(), nullable=True))
    op.add_column("users", sa.Column("oidc_subject", sa.String(), nullable=True))
    op.create_index("ix_users_oidc_subject", "users", ["oidc_subject"], unique=True)
    op.add_column("sessions", sa.Column("last_used_at", types.UtcDateTime(), nullable=True))
    for name in ("signed_in_by", "key_id", "address", "device"):
        op.add_column("sessions", sa.Column(name, sa.String(), nullable=True))
    op.create_index("ix_sessions_key_id", "sessions", ["key_id"])
    for name in ("address", "via"):
        op.add_column("events", sa.Column(name, sa.String(), nullable=True))
    op.create_index("ix_events_by_people", "events", ["seq"], sqlite_where=BY_PEOPLE, postgresql_where=BY_PEOPLE)


def downgrade() -> None:
    op.drop_index("ix_events_by_people", table_name="events")
    for name in ("address", "via"):
        op.drop_column("events", name)
    op.drop_index("ix_sessions_key_id", table_name="sessions")
    for name in ("last_used_at", "signed_in_by", "key_id", "address", "device"):
        op.drop_column("sessions", name)
    op.drop_index("ix_users_oidc_subject", table_name="users")
    for name in ("last_active_at", "oidc_subject"):
        op.drop_column("users", name)
