"""The coordinator's one reader of the environment. Everything has a default that suits one machine."""

from __future__ import annotations

import functools
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import ByteSize, DirectoryPath, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from paceline.cluster.history.node_readings import KeepReadings
from paceline.cluster.history.storage import KeepPolicy
from paceline.location import DASHBOARD
from paceline.objects.endpoints import SETTING as STORE_ENDPOINTS
from paceline.objects.endpoints import listed_endpoints
from paceline.tls.trust import TrustError, fingerprint_of

#: How the names of variables begin that pools may have handed to their providers.
PROVIDER_SECRETS = ("PACELINE_SSH_", "PACELINE_KUBERNETES_")
_SIZE = re.compile(r"\s*(\d*\.)?\d+\s*[A-Za-z]*\s*")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Settings(BaseSettings):
    """The settings, each read from `PACELINE_<FIELD>`, except DATABASE_URL and REDIS_URL, which every platform already calls so,
    and MOCK_DB. An empty variable is as one that is not set."""

    model_config = SettingsConfigDict(env_prefix="PACELINE_", env_ignore_empty=True, frozen=True, populate_by_name=True, extra="ignore")

    data: Path = Field(Path(".paceline"), description="folder of the SQLite files")
    database_url: str | None = Field(None, validation_alias="DATABASE_URL", description="postgresql://...; empty: SQLite")
    redis_url: str | None = Field(None, validation_alias="REDIS_URL", description="redis://...: replicas wake each other up through it")
    mock_db: bool = Field(
        False,
        validation_alias="MOCK_DB",
        description="a database in memory that is gone at the end, a simulated cluster with demo jobs, and no signing in on loopback",
    )
    allowed_hosts: str = Field("", description="comma-separated Host names besides the loopback ones")
    insecure_public: bool = Field(False, description="answer plain http from other machines (keys travel readable)")
    dashboard: Path = Field(DASHBOARD, description="the built dashboard")
    uvicorn_port: int | None = Field(None, validation_alias="UVICORN_PORT", description="where uvicorn's own command listens")
    public_url: str = Field("", description="how browsers and agents reach us, for the links we print")
    tls_ca: Path | None = Field(
        None,
        description="certificate, in PEM, of the authority that signed the coordinator's or its proxy's: join tokens carry its fingerprint, and "
        "agents believe it alone. Empty: agents believe the authorities that their machines know",
    )
    print_login_link: bool = Field(True, description="print a login link at the very first start; `paceline up` prints its own")
    log_file: Path | None = Field(None, description="where this process's output goes; cut when it is large")
    secrets_key: SecretStr = Field(
        SecretStr(""),
        description="comma-separated keys of 32 bytes in base64 that seal secrets, the newest first; empty: those in the file",
    )
    secrets_key_file: Path | None = Field(None, description="the file of these keys, one a line; default: secrets.key in the data folder")
    heartbeat_seconds: float = Field(2.0, gt=0)
    observe_seconds: float = Field(3.0, gt=0)
    members_may: Literal["own", "all"] = Field(
        "own", description="what members may cancel, delete and unpin: their own jobs' things, or everybody's. Admins may always"
    )
    exec_by: Literal["owners", "admins", "nobody"] = Field(
        "owners", description="who may run commands beside the ranks of a job: its owner and admins, admins alone, or nobody"
    )
    exec_idle_minutes: float = Field(30.0, gt=0, description="a session without input and output ends after so long")
    exec_hours: float = Field(12.0, gt=0, description="every session ends after so long")
    exec_per_node: int = Field(8, ge=1, description="sessions on one node at a time")
    exec_per_user: int = Field(8, ge=1, description="sessions of one user at a time")
    session_days: int = Field(14, ge=1, le=365)
    oidc_issuer: str = Field("", description="OpenID provider that signs users in, such as https://login.example.org; empty: none")
    oidc_client_id: str = Field("", description="this coordinator's name at the provider")
    oidc_client_secret: SecretStr = Field(SecretStr(""), description="its secret there; empty: a public client")
    oidc_label: str = Field("single sign-on", description="what the login page calls the provider")
    oidc_scopes: str = Field("openid profile email", description="what the provider is asked for")
    oidc_name_claim: str = Field("email", description="claim of the ID token that names a new user")
    oidc_groups_claim: str = Field("groups", description="claim of the ID token that lists the user's groups")
    oidc_admin_groups: str = Field("", description="comma-separated groups whose members are admins")
    oidc_member_groups: str = Field("", description="comma-separated groups whose members are members")
    oidc_viewer_groups: str = Field("", description="comma-separated groups whose members are viewers")
    oidc_default_role: Literal["none", "viewer", "member"] = Field(
        "viewer", description="role of users in none of these groups; none: refused"
    )
    smtp_host: str = Field("", description="mail server for notifications; empty: channels cannot send e-mail")
    smtp_port: int | None = Field(None, ge=1, le=65535, description="its port; default: 465 for tls, else 587")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls",
        description="starttls: encrypted after the greeting; tls: from the first byte; none: readable, for this machine",
    )
    smtp_user: str = Field("", description="who signs in there; empty: nobody")
    smtp_password: SecretStr = Field(SecretStr(""), description="with this password")
    smtp_from: str = Field("", description="sender of the mail, such as paceline@example.org; empty: smtp_user")
    notify_allow: str = Field(
        "",
        description="comma-separated host names, addresses and networks that webhooks may reach although they are inside, or over plain http, "
        "such as hooks.corp.example,10.20.0.0/16; default: the public internet over https alone",
    )
    store_endpoints: str = Field(
        "",
        description="comma-separated endpoints of object stores, such as https://minio.example:9000, that jobs' checkpoints may name: the "
        "coordinator reads them there with its own credentials. AWS_ENDPOINT_URL and AZURE_STORAGE_ENDPOINT count as well",
    )
    keep_points_days: int = Field(30, ge=1, description="raw points")
    keep_curves_days: int = Field(365, ge=1, description="roll-ups, from a job's last point on")
    keep_lines_days: int = Field(30, ge=1, description="log lines")
    keep_events_days: int = Field(365, ge=1, description="events, but for those of jobs that have not ended")
    keep_artifacts_days: int = Field(90, ge=1, description="traces, gradients and files of ended jobs")
    keep_ranks_days: int = Field(30, ge=1, description="ranks of earlier generations, from their job's end on")
    keep_readings_hours: float = Field(3.0, gt=0, description="readings of nodes and cards, each second")
    keep_readings_days: int = Field(30, ge=1, description="readings in buckets of a minute; of 10 s a tenth as long; of 10 min as curves")
    keep_size: ByteSize = Field(
        ByteSize(20 << 30), description="points, roll-ups, log lines and readings together, such as 20GiB; 0: no limit"
    )
    keep_recent_hours: float = Field(24.0, ge=0, description="of a job that has not ended: goes last when keep_size is passed")
    disk_low: ByteSize | None = Field(
        None, description="free disk under which points, lines and files are refused, such as 2GiB; 0: never; default: 5 % or 2 GiB"
    )

    disk_folder: DirectoryPath | None = Field(
        None,
        description="folder on the disk that PACELINE_DISK_LOW is about, such as that of a PostgreSQL server on this machine; default: "
        "PACELINE_DATA with SQLite, with PostgreSQL none",
    )

    @field_validator("keep_size", "disk_low", mode="before")
    @classmethod
    def _size_is_understood_as_a_whole(cls, value: object, info: ValidationInfo) -> object:
        """Refuse what pydantic reads the beginning of, and drops the rest: to it, 1,000GiB is one byte."""
        if isinstance(value, str) and not _SIZE.fullmatch(value):
            name = f"PACELINE_{str(info.field_name).upper()}"
            raise ValueError(f"{name}={value} must be a number of bytes, with or without a unit, such as 20GiB or 2.5GiB")
        return value

    @model_validator(mode="after")
    def _provider_is_described(self) -> Self:
        if self.oidc_issuer and not self.oidc_client_id:
            raise ValueError("PACELINE_OIDC_ISSUER needs PACELINE_OIDC_CLIENT_ID, this coordinator's name at the provider")
        if (
            self.oidc_issuer
            and urlsplit(self.oidc_issuer).scheme != "https"
            and urlsplit(self.oidc_issuer).hostname not in ("localhost", "127.0.0.1")
        ):
            raise ValueError(f"PACELINE_OIDC_ISSUER={self.oidc_issuer} must begin with https://: its answers say who signs in")
        return self

    @model_validator(mode="after")
    def _authority_can_be_read(self) -> Self:
        if self.tls_ca is not None:
            try:
                fingerprint_of(self.tls_ca.read_text("ascii", errors="replace"))
            except (OSError, TrustError) as error:
                raise ValueError(f"PACELINE_TLS_CA={self.tls_ca} must be a certificate in PEM: {error}") from error
        return self

    @property
    def oidc_groups(self) -> dict[str, frozenset[str]]:
        """The groups of each role, the strongest role first. Empty: an admin sets roles, and the provider none."""
        lists = {"admin": self.oidc_admin_groups, "member": self.oidc_member_groups, "viewer": self.oidc_viewer_groups}
        named = {role: frozenset(name.strip() for name in names.split(",") if name.strip()) for role, names in lists.items()}
        return named if any(named.values()) else {}

    @property
    def keep(self) -> KeepPolicy:
        """The kinds of data that are kept of jobs, and how long."""
        days = {
            kind: timedelta(days=getattr(self, f"keep_{kind}_days"))
            for kind in ("points", "curves", "lines", "events", "artifacts", "ranks")
        }
        readings = KeepReadings(
            raw=timedelta(hours=self.keep_readings_hours), fine=timedelta(days=self.keep_readings_days) / 10, coarse=days["curves"]
        )
        return KeepPolicy(**days, readings=readings, bytes=int(self.keep_size), recent=timedelta(hours=self.keep_recent_hours))

    @property
    def listed_store_endpoints(self) -> frozenset[str]:
        return listed_endpoints({**os.environ, STORE_ENDPOINTS: self.store_endpoints})

    @property
    def hosts(self) -> frozenset[str]:
        return _known_hosts(self.allowed_hosts)


@functools.lru_cache(maxsize=8)
def _known_hosts(allowed_hosts: str) -> frozenset[str]:
    """The known host names, cached: every request asks for them."""
    named = (name.strip().lower() for name in allowed_hosts.split(","))
    return frozenset(LOOPBACK_NAMES) | frozenset(name for name in named if name)


def provider_secret(name: str) -> str | None:
    """A password for SSH hosts or a token for a Kubernetes cluster, from the environment. Only variables that are meant for it can be read: a pool
    names them, and whoever runs its hosts is told the value. None: it is not set."""
    return os.environ.get(name) if name.startswith(PROVIDER_SECRETS) else None
