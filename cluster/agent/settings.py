"""What an agent is told: its command line, and the one environment variable that keeps a token out of `ps`."""

from __future__ import annotations

import argparse
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cluster.agent.spawner import DEFAULT_ORPHAN_SECONDS, DEFAULT_TRAINER

TOKEN_VARIABLE = "PACELINE_JOIN_TOKEN"
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class AgentSettings:
    server: str  # http(s)://host:port
    token: str | None
    name: str
    data: Path
    checkpoints: Path
    slots: int | None
    address: str | None
    labels: dict[str, str]
    trainer: str
    orphan_seconds: float

    @property
    def channel_server(self) -> str:
        return "ws" + self.server.removeprefix("http")

    @property
    def server_host(self) -> str:
        return urlsplit(self.server).hostname or ""

    @property
    def server_port(self) -> int:
        parts = urlsplit(self.server)
        return parts.port or (443 if parts.scheme == "https" else 80)


def read_settings(arguments: Sequence[str] | None = None) -> AgentSettings:
    """From the command line; a usage error exits with 2."""
    options = _parser().parse_args(arguments)
    return AgentSettings(
        server=options.server,
        token=options.token or os.environ.get(TOKEN_VARIABLE) or None,
        name=options.name,
        data=options.data.absolute(),
        checkpoints=(options.checkpoints or options.data / "checkpoints").absolute(),
        slots=options.slots,
        address=options.address,
        labels=dict(options.label),
        trainer=options.trainer,
        orphan_seconds=options.orphan_seconds,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster.agent.main", description="Offer this machine's slots to a Paceline coordinator."
    )
    parser.add_argument("--server", type=_server, required=True, metavar="URL", help="the coordinator, e.g. http://127.0.0.1:8000")
    parser.add_argument("--token", help=f"single-use join token, needed once; or ${TOKEN_VARIABLE}, which ps does not show")
    parser.add_argument("--name", type=_name, default=_default_name(), help="the node's name (default: %(default)s)")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the agent's own folder")
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="where jobs save; shared between nodes (default: DATA/checkpoints)")
    parser.add_argument("--slots", type=_positive, metavar="N", help="CPU slots to offer where there is no GPU (default: one per CPU)")
    parser.add_argument("--address", metavar="HOST", help="where other nodes reach this one (default: the address that reaches the server)")
    parser.add_argument("--label", type=_label, action="append", default=[], metavar="K=V", help="for placement; may be repeated")
    parser.add_argument("--trainer", default=DEFAULT_TRAINER, metavar="MODULE", help="what ranks run: preload() and run_rank(order)")
    parser.add_argument("--orphan-seconds", type=float, default=DEFAULT_ORPHAN_SECONDS, help="how long ranks outlive their agent")
    return parser


def _server(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{value!r} is not a URL like http://127.0.0.1:8000")
    return value.rstrip("/")


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise argparse.ArgumentTypeError(f"{value!r}: use up to 63 lower-case letters, digits, '.', '_' and '-'")
    return value


def _default_name() -> str:
    return re.sub(r"[^a-z0-9._-]", "-", platform.node().lower()).strip("._-")[:63] or "node"


def _positive(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of at least 1")
    return int(value)


def _label(value: str) -> tuple[str, str]:
    key, separator, text = value.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{value!r} is not KEY=VALUE")
    return key, text
