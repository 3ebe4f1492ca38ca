"""The coordinator's one reader of the environment. Everything has a default that suits one machine."""

from __future__ import annotations

import functools
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import ByteSize, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from paceline.cluster.history.node_readings import KeepReadings
from paceline.cluster.history.storage import KeepPolicy
from paceline.location import DASHBOARD

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Settings(BaseSettings):
    """The settings, each read from `PACELINE_<FIELD>`, except DATABASE_URL and REDIS_URL, which every platform already calls so,
    and MOCK_DB."""

    model_config = SettingsConfigDict(env_prefix="PACELINE_", frozen=True, populate_by_name=True, extra="ignore")

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
    print_login_link: bool = Field(True, description="print a login link at the very first start; `paceline up` prints its own")
    log_file: Path | None = Field(None, description="where this process's output goes; cut when it is large")
    heartbeat_seconds: float = Field(2.0, gt=0)
    observe_seconds: float = Field(3.0, gt=0)
    members_may: Literal["own", "all"] = Field(
        "own", description="what members may cancel, delete and unpin: their own jobs' things, or everybody's. Admins may always"
    )
    session_days: int = Field(14, ge=1)
    keep_points_days: int = Field(30, ge=1, description="raw points")
    keep_curves_days: int = Field(365, ge=1, description="roll-ups, from a job's last point on")
    keep_lines_days: int = Field(30, ge=1, description="log lines")
    keep_events_days: int = Field(365, ge=1, description="events, but for those of jobs that have not ended")
    keep_artifacts_days: int = Field(90, ge=1, description="traces and gradients of ended jobs")
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
    def hosts(self) -> frozenset[str]:
        return _known_hosts(self.allowed_hosts)


@functools.lru_cache(maxsize=8)
def _known_hosts(allowed_hosts: str) -> frozenset[str]:
    """The known host names, cached: every request asks for them."""
    named = (name.strip().lower() for name in allowed_hosts.split(","))
    return frozenset(LOOPBACK_NAMES) | frozenset(name for name in named if name)
