"""The coordinator's one reader of the environment. Everything has a default that suits one machine."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Settings(BaseSettings):
    """`PACELINE_<FIELD>`, except DATABASE_URL and REDIS_URL, which every platform already calls so."""

    model_config = SettingsConfigDict(env_prefix="PACELINE_", frozen=True, populate_by_name=True, extra="ignore")

    data: Path = Field(Path(".paceline"), description="folder of the SQLite files")
    database_url: str | None = Field(None, validation_alias="DATABASE_URL", description="postgresql://...; empty: SQLite")
    redis_url: str | None = Field(None, validation_alias="REDIS_URL", description="redis://...: replicas wake each other up through it")
    allowed_hosts: str = Field("", description="comma-separated Host names besides the loopback ones")
    insecure_public: bool = Field(False, description="answer plain http from other machines (keys travel readable)")
    dashboard: Path = Field(Path(__file__).parents[1] / "dashboard" / "dist", description="the built dashboard")
    public_url: str = Field("", description="how browsers and agents reach us, for the links we print")
    heartbeat_seconds: float = Field(2.0, gt=0)
    observe_seconds: float = Field(3.0, gt=0)
    session_days: int = Field(14, ge=1)

    @property
    def hosts(self) -> frozenset[str]:
        named = (name.strip().lower() for name in self.allowed_hosts.split(","))
        return frozenset(LOOPBACK_NAMES) | frozenset(name for name in named if name)
