"""Jobs: what lists are filtered and searched by, notes, the archive; and the saved views of lists."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from paceline.db import base as types

revision = "control_0020"
down_revision = "control_0019"
branch_labels = None
depends_on = None

_JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String()),
    sa.column("name", sa.String()),
    sa.column("labels", types.JsonDocument),
    sa.column("spec", types.JsonDocument),
    sa.column("model", sa.String()),
    sa.column("search_text", sa.String()),
)
BATCH = 500


def upgrade() -> None:
    op.add_column("jobs", sa.Column("model", sa.String(), server_default="unknown", nullable=False))
    op.add_column("jobs", sa.Column("notes", sa.String(), server_default="", nullable=False))
    op.add_column("jobs", sa.Column("archived_at", types.UtcDateTime(), nullable=True))
    op.add_column("jobs", sa.Column("search_text", sa.String(), server_default="", nullable=False))
    _fill()
    op.create_index("ix_jobs_listed", "jobs", ["archived_at", "created_at", "id", "project", "created_by", "model", "state"], unique=False)
    op.create_table(
        "saved_views",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("query", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_by_id", sa.String(), nullable=True),
        sa.Column("created_at", types.UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_views")),
        sa.UniqueConstraint("name", name=op.f("uq_saved_views_name")),
    )


def _fill() -> None:
    """Give the jobs that there are what a new one is stored with."""
    connection, after = op.get_bind(), ""
    columns = (_JOBS.c.id, _JOBS.c.name, _JOBS.c.labels, _JOBS.c.spec)
    change = sa.update(_JOBS).where(_JOBS.c.id == sa.bindparam("job"))
    change = change.values(model=sa.bindparam("its_model"), search_text=sa.bindparam("its_text"))
    while rows := connection.execute(sa.select(*columns).where(_JOBS.c.id > after).order_by(_JOBS.c.id).limit(BATCH)).all():
        connection.execute(change, [_filled(*row) for row in rows])
        after = rows[-1].id


def _filled(job: str, name: str, labels: Any, spec: Any) -> dict[str, str]:
    spec = spec if isinstance(spec, dict) else {}
    model = spec.get("model")
    kind = model.get("kind") if isinstance(model, dict) else None
    kind = "script" if spec.get("script") is not None else "entrypoint" if spec.get("entrypoint") is not None else kind or "unknown"
    text = "\n".join([name, str(spec.get("description") or ""), *(f"{key}={value}" for key, value in (labels or {}).items()), ""])
    return {"job": job, "its_model": str(kind), "its_text": text.casefold()}


def downgrade() -> None:
    op.drop_table("saved_views")
    op.drop_index("ix_jobs_listed", table_name="jobs")
    for column in ("search_text", "archived_at", "notes", "model"):
        op.drop_column("jobs", column)
