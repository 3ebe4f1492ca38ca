"""Partial indexes for the rows that loops read."""

import sqlalchemy as sa
from alembic import op

revision = "control_0010"
down_revision = "control_0009"
branch_labels = None
depends_on = None

HOLDING = "(state NOT IN ('exited', 'moved'))"
OPEN = f"{HOLDING} OR drained IS :false"
JOINED_LATER = "newcomer IS :true OR parked IS :true AND state IN ('exited') AND outcome IN ('failed')"
#: (table, name, columns, which rows)
INDEXES = (
    ("jobs", "ix_jobs_restored_from", ["restored_from"], "restored_from IS NOT NULL"),
    ("ranks", "ix_ranks_open_of_node", ["node_id", "job_id", "generation", "rank"], OPEN),
    ("ranks", "ix_ranks_open_of_job", ["job_id", "node_id"], OPEN),
    ("ranks", "ix_ranks_joined_later", ["job_id", "updated_at"], JOINED_LATER),
    ("incidents", "ix_incidents_unsettled", ["id"], "settled IS :false"),
    ("checkpoints", "ix_checkpoints_kept", ["job_id", "version", "id"], "state IN ('committed', 'damaged', 'superseded')"),
    ("checkpoints", "ix_checkpoints_being_deleted", ["node_id"], "state IN ('deleting')"),
    ("events", "ix_events_planned", ["job_id", "seq"], "type IN ('job.planned')"),
)


def upgrade() -> None:
    op.create_index("ix_jobs_state_desired", "jobs", ["state", "desired", "id", "version"], unique=False)
    words = {":true": "1", ":false": "0"} if op.get_bind().dialect.name == "sqlite" else {":true": "true", ":false": "false"}
    for table, name, columns, rows in INDEXES:
        for word, constant in words.items():
            rows = rows.replace(word, constant)
        op.create_index(name, table, columns, unique=False, sqlite_where=sa.text(rows), postgresql_where=sa.text(rows))


def downgrade() -> None:
    for table, name, _, _ in reversed(INDEXES):
        op.drop_index(name, table_name=table)
    op.drop_index("ix_jobs_state_desired", table_name="jobs")
