"""The audit: what people did, and where they did it from."""

from __future__ import annotations

from paceline.api.schemas.common import Schema, Timestamp


class AuditEntry(Schema):
    seq: int
    time: Timestamp
    user_id: str
    user_name: str
    action: str  # auth.signed_in, user.created, key.revoked, job.submitted, checkpoint.deleted, node.invited, ...
    message: str
    address: str | None
    via: str | None
    job_id: str | None
    node_id: str | None
