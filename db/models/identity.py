"""Users, and the secrets that stand for them. Only SHA-256 hashes are kept, with which nobody can sign in."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, false, text
from sqlalchemy.orm import Mapped, mapped_column

from paceline.db.base import BigInt, ControlBase, JsonDocument, UtcDateTime, new_id


class UserRow(ControlBase):
    __tablename__ = "users"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str]
    disabled: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_active_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: Issuer and subject at an OpenID provider, with a space between them; None: has never signed in that way.
    oidc_subject: Mapped[str | None]

    __table_args__ = (Index(None, "oidc_subject", unique=True),)


class ApiKeyRow(ControlBase):
    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    hash: Mapped[str] = mapped_column(unique=True)
    prefix: Mapped[str]
    name: Mapped[str]
    role: Mapped[str]
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: The key that made this one: it ends no later than that, and is revoked with it.
    parent_id: Mapped[str | None] = mapped_column(index=True)
    #: Whether no later key of the user has taken its name. A key that no longer works holds its name until another one is made; of two that
    #: work and have one name, as keys of version 0.1 may, one holds it or none does.
    holds_name: Mapped[bool] = mapped_column(server_default=false())

    __table_args__ = (
        Index(
            "uq_api_keys_name_while_held",
            "user_id",
            "name",
            unique=True,
            sqlite_where=text("holds_name"),
            postgresql_where=text("holds_name"),
        ),
    )


class LoginLinkRow(ControlBase):
    __tablename__ = "login_links"

    hash: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"))
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class SessionRow(ControlBase):
    __tablename__ = "sessions"

    hash: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    csrf_token: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    signed_in_by: Mapped[str | None]
    #: The key that signed in: the session may do what the key may, ends no later, and is over when the key is revoked.
    key_id: Mapped[str | None] = mapped_column(index=True)
    address: Mapped[str | None]
    device: Mapped[str | None]


class JoinTokenRow(ControlBase):
    """A join token works once. One of a launch works for the name of its node alone, as long as the launch is wanted: an engine may start the
    same node again."""

    __tablename__ = "join_tokens"

    hash: Mapped[str] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_by: Mapped[str]
    launch_id: Mapped[str | None]


class IdempotencyKeyRow(ControlBase):
    """A key that is claimed in the transaction that creates, and holds the answer once that has committed."""

    __tablename__ = "idempotency_keys"

    user_id: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    route: Mapped[str]
    body_hash: Mapped[str]
    status: Mapped[int | None] = mapped_column(BigInt)
    response: Mapped[dict[str, Any] | None] = mapped_column(JsonDocument)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "created_at"),)
