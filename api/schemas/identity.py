"""Users, sessions and API keys."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.training.schema.parts import Text, Whole
from paceline.training.schema.spelling import SpellingRule

Role = Literal["viewer", "member", "admin"]


class LoginRequest(Schema):
    token: str = Field(description="of a single-use login link, or an API key", max_length=200)


class SignInWays(Schema):
    oidc: str | None = Field(description="what to call the OpenID provider that signs users in; null: there is none")


class Me(Schema):
    user_id: str
    name: str
    role: Role
    members_may: Literal["own", "all"] = Field(description="whose jobs a member may cancel, and delete or unpin things of")
    exec_by: Literal["owners", "admins", "nobody"] = Field(description="who may run commands beside the ranks of a job")
    csrf_token: str | None = Field(description="send as X-CSRF-Token with every unsafe request; null for API keys")
    guest: bool = Field(False, description="an admin without signing in, as on loopback with MOCK_DB: there is nothing to sign out of")
    mock: bool = Field(False, description="the coordinator runs with MOCK_DB: its database is gone at its end, its nodes are simulated")


class User(Schema):
    id: str
    name: str
    role: Role
    disabled: bool
    created_at: Timestamp
    last_active_at: Timestamp | None = Field(None, description="to the minute; null: not since this is recorded")


class UserCreate(Schema):
    name: Annotated[
        str,
        SpellingRule(
            r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,62}$",
            "1 to 63 letters, digits, spaces, '.', '_', '@' and '-'; first a letter or digit",
            "ada@example.org",
        ),
    ]
    role: Role = "member"


class UserUpdate(Schema):
    role: Role | None = None
    disabled: bool | None = None


class LoginLink(Schema):
    url: str = Field(description="single-use; shown once")
    expires_at: Timestamp


class BrowserSession(Schema):
    """A browser that is signed in to the dashboard."""

    id: str
    user_id: str
    user_name: str
    signed_in_by: Literal["login_link", "api_key", "oidc"] | None = Field(description="null: before this was recorded")
    key_prefix: str | None = Field(description="of the key that signed in: the session ends with it")
    device: str | None = Field(description="browser and system, as the browser names them")
    address: str | None
    created_at: Timestamp
    last_used_at: Timestamp | None = Field(description="to the minute")
    expires_at: Timestamp
    current: bool = Field(description="the session that asks")


class ApiKey(Schema):
    id: str
    user_id: str
    user_name: str
    name: str
    prefix: str
    role: Role = Field(description="what the key may do at most; never more than its user")
    created_at: Timestamp
    expires_at: Timestamp | None
    last_used_at: Timestamp | None
    revoked_at: Timestamp | None
    parent_id: str | None = Field(None, description="the key that made it: it ends no later than that one, and is revoked with it")


class ApiKeyCreate(Schema):
    name: Text = Field(min_length=1, max_length=64)
    role: Role = "member"
    expires_in_days: Whole | None = Field(90, ge=1, le=3650)


class ApiKeyCreated(ApiKey):
    key: str = Field(description="shown once")
