"""The settings of an agent: its command line, and by environment variables a token, which `ps` must not show, and its log."""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from paceline.cluster.agent.confinement import Confinement
from paceline.cluster.agent.notices import NoticeSettings, add_notice_options, read_notice_options
from paceline.cluster.agent.spawner_link import DEFAULT_ORPHAN_SECONDS, DEFAULT_TRAINER
from paceline.cluster.agent.upload.output_gaps import DEFAULT_CAP_BYTES, MIN_CAP_BYTES
from paceline.cluster.agent.upload.spool_head import DEFAULT_KEPT_BYTES, MIN_KEPT_BYTES
from paceline.cluster.passed_variables import why_not_passed
from paceline.cluster.policy.quiet import PATIENCE_SECONDS
from paceline.monitoring.cards import VARIABLE, CardChoice, CardChoiceError, read_option, read_variable
from paceline.objects.endpoints import listed_endpoints
from paceline.tls.trust import TrustError, fingerprint_of, travels_readable
from paceline.training.schema.resources import LONGEST_NODE_VALUE, NODE_KEY, unprintable

TOKEN_VARIABLE = "PACELINE_JOIN_TOKEN"
MIN_MEMORY_BYTES = 64 << 20
LEAST_SECONDS = 1.0
_SIZE = re.compile(r"(?P<number>[0-9]{1,9}) ?(?P<unit>[KMGT]iB)", re.IGNORECASE)
_SHIFTS = {"kib": 10, "mib": 20, "gib": 30, "tib": 40}
NO_NOTICES = NoticeSettings()
LOG_VARIABLE = "PACELINE_LOG_FILE"
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class AgentSettings:
    server: str  # http(s)://host:port
    token: str | None
    name: str
    data: Path
    checkpoints: Path
    gpus: CardChoice | None  # --gpus; None: all that CUDA_VISIBLE_DEVICES shows
    visible: CardChoice  # CUDA_VISIBLE_DEVICES
    slots: int | None
    address: str | None
    labels: dict[str, str]
    taints: dict[str, str]  # by key
    trainer: str
    orphan_seconds: float
    output_cap: int  # bytes that the output of one rank may take here
    quiet_seconds: float  # how long a script may have neither output nor a step before it is looked at
    ports: range | None  # for the store and for the rendezvous of scripts; None: any free one
    confinement: Confinement
    notices: NoticeSettings = NO_NOTICES
    authority: str | None = None  # --ca, as PEM: the one authority to believe; None: that of the join token, or those of this machine
    spool_kept: int = DEFAULT_KEPT_BYTES  # of the acknowledged points of one rank, and of its events
    store_endpoints: frozenset[str] = frozenset()  # of jobs' stores, that the agent's own credentials may be sent to
    log_file: Path | None = None  # where its output goes; cut when it is large

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
    """Read the settings from the command line; a usage error exits with 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        gpus, visible = None if options.gpus is None else read_option(options.gpus), read_variable(os.environ.get(VARIABLE))
    except CardChoiceError as error:
        parser.error(str(error))
    if travels_readable(options.server) and not options.insecure_http:
        parser.error(
            f"argument --server: {options.server} is plain http to another machine: this node's credential, code and logs would travel readable; "
            "use the coordinator's https address, or add --insecure-http on a network that you trust"
        )
    return AgentSettings(
        server=options.server,
        token=options.token or os.environ.get(TOKEN_VARIABLE) or (options.token_file.read_text().strip() if options.token_file else None),
        name=options.name,
        data=options.data.absolute(),
        # without "..": checkpoints are never deleted by such a path
        checkpoints=Path(os.path.abspath(options.checkpoints or options.data / "checkpoints")),
        gpus=gpus,
        visible=visible,
        slots=options.slots,
        address=options.address,
        labels=_by_key(parser, "--label", options.label),
        taints=_by_key(parser, "--taint", options.taint),
        trainer=options.trainer,
        orphan_seconds=options.orphan_seconds,
        output_cap=options.output_cap,
        spool_kept=options.spool_kept,
        quiet_seconds=options.quiet_seconds,
        ports=options.port_range,
        confinement=Confinement(
            pass_environment=tuple(name for names in options.pass_env for name in names),
            run_as=options.run_as,
            memory_limit=options.memory_limit,
            shielded=options.drain_on_term is not None,
        ),
        notices=read_notice_options(options),
        authority=options.ca,
        store_endpoints=listed_endpoints(os.environ),
        log_file=Path(log) if (log := os.environ.get(LOG_VARIABLE)) else None,
    )


def forget_token() -> None:
    """Blank the join token in this process's own environment. A rank that runs as the same user can read /proc/PID/environ, which shows
    what the process was started with, until its bytes are overwritten."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(TOKEN_VARIABLE.encode())
    if address:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))
    os.environ.pop(TOKEN_VARIABLE, None)


class _Parser(argparse.ArgumentParser):
    """Refuses in the words of the command line. `paceline worker` becomes this program, whose own usage nobody has typed."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\nhint: 'paceline worker --help' lists options\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m paceline.cluster.agent.main", description="Offer this machine's slots to a Paceline coordinator.")
    parser.add_argument("--server", type=_server, required=True, metavar="URL", help="the coordinator, e.g. http://127.0.0.1:8000")
    parser.add_argument("--token", help=f"single-use join token, needed once; or ${TOKEN_VARIABLE}, which ps does not show")
    parser.add_argument("--token-file", type=_file, metavar="FILE", help="the token in a file, read where there is no credential yet")
    parser.add_argument("--ca", type=_authority, metavar="FILE", help="believe this authority alone, in PEM (default: that of the token)")
    parser.add_argument("--insecure-http", action="store_true", help="speak plain http to another machine: keys and code travel readable")
    parser.add_argument("--name", type=_name, default=_default_name(), help="the node's name (default: %(default)s)")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="the agent's own folder")
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="where jobs save; shared between nodes (default: DATA/checkpoints)")
    _add_offer(parser)
    _add_places(parser)
    parser.add_argument(
        "--quiet-seconds",
        type=_seconds,
        default=PATIENCE_SECONDS,
        metavar="SECONDS",
        help="how long a script may have no output and no step before its stacks are looked at (default: %(default)g); its own "
        "fault_tolerance.hang_seconds wins",
    )
    parser.add_argument("--label", type=_label, action="append", default=[], metavar="K=V", help="for placement; may be repeated")
    parser.add_argument(
        "--taint", type=_taint, action="append", default=[], metavar="K[=V]", help="keeps jobs off that do not tolerate it; may be repeated"
    )
    parser.add_argument("--trainer", default=DEFAULT_TRAINER, metavar="MODULE", help="what ranks run: preload() and run_rank(order)")
    parser.add_argument(
        "--memory-limit", type=_memory_limit, metavar="SIZE", help="of one rank and all it starts, e.g. 16GiB; needs cgroup v2"
    )
    parser.add_argument("--run-as", metavar="USER", help="run ranks as this user, with no access to the agent's files; needs root")
    parser.add_argument(
        "--pass-env",
        type=_names,
        action="append",
        default=[],
        metavar="NAME[,PREFIX*]",
        help="variables of this agent that its ranks get besides the usual ones, by name or by how their names begin; may be repeated",
    )
    add_notice_options(parser)
    parser.add_argument(
        "--orphan-seconds",
        type=_seconds,
        default=DEFAULT_ORPHAN_SECONDS,
        metavar="SECONDS",
        help="how long ranks run on without their agent before they are ended (default: %(default)g)",
    )
    return parser


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--address", metavar="HOST", help="where other nodes reach this one (default: the address that reaches the server)")
    parser.add_argument(
        "--port-range",
        "--ports",
        type=_ports,
        metavar="A-B",
        help="for the gangs' stores and scripts' MASTER_PORT (default: any free port)",
    )
    parser.add_argument(
        "--output-cap",
        type=_output_cap,
        default=DEFAULT_CAP_BYTES,
        metavar="SIZE",
        help="what one rank's output may take on disk, e.g. 256MiB; its head and its tail are kept (default: 256MiB)",
    )
    parser.add_argument(
        "--spool-kept",
        type=_spool_kept,
        default=DEFAULT_KEPT_BYTES,
        metavar="SIZE",
        help="of the points of a living rank that the coordinator has, and of its events, so much stays on disk for one that is restored from an "
        "older copy (default: 256MiB)",
    )


def _add_offer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpus",
        metavar="LIST",
        help="GPUs to offer: indices as in nvidia-smi, UUIDs, all or none (default: all that CUDA_VISIBLE_DEVICES shows)",
    )
    parser.add_argument(
        "--slots", type=_positive, metavar="N", help="CPU slots (default: one per CPU); where GPUs are offered, at most N that are free"
    )


def _server(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError(f"{value!r} is not a URL like http://127.0.0.1:8000")
    return value.rstrip("/")


def _file(value: str) -> Path:
    if not Path(value).is_file():
        raise argparse.ArgumentTypeError(f"{value!r} is no file")
    return Path(value)


def _authority(value: str) -> str:
    try:
        text = _file(value).read_text("ascii", errors="replace")
        fingerprint_of(text)
    except (OSError, TrustError) as error:
        raise argparse.ArgumentTypeError(f"{value!r} has no certificate in PEM: {error}") from None
    return text


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise argparse.ArgumentTypeError(f"{value!r}: use up to 63 lower-case letters, digits, '.', '_' and '-'")
    return value


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if (why := why_not_passed(name)) is not None:
            raise argparse.ArgumentTypeError(why)
    return names


def _default_name() -> str:
    return re.sub(r"[^a-z0-9._-]", "-", platform.node().lower()).strip("._-")[:63] or "node"


def _positive(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of at least 1")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not LEAST_SECONDS <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of seconds of at least {LEAST_SECONDS:g}")
    return seconds


def _size(value: str) -> int:
    found = _SIZE.fullmatch(value)
    if not found:
        raise argparse.ArgumentTypeError(f"{value!r} is not a size such as 256MiB or 16GiB")
    return int(found["number"]) << _SHIFTS[found["unit"].lower()]


def _output_cap(value: str) -> int:
    size = _size(value)
    if size < MIN_CAP_BYTES:
        raise argparse.ArgumentTypeError(f"{value!r} is less than 1MiB, too little for the head and the tail of an output")
    return size


def _spool_kept(value: str) -> int:
    size = _size(value)
    if size < MIN_KEPT_BYTES:
        raise argparse.ArgumentTypeError(f"{value!r} is less than {MIN_KEPT_BYTES >> 20}MiB")
    return size


def _memory_limit(value: str) -> int:
    size = _size(value)
    if size < MIN_MEMORY_BYTES:
        raise argparse.ArgumentTypeError(f"{value!r} is less than {MIN_MEMORY_BYTES >> 20}MiB, in which no rank can start")
    return size


def _ports(value: str) -> range:
    first, separator, last = value.partition("-")
    if not separator or not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) < int(last) <= 65535:
        raise argparse.ArgumentTypeError(f"{value!r} is not a range of ports such as 29400-29499, within 1-65535")
    return range(int(first), int(last) + 1)


def _label(value: str) -> tuple[str, str]:
    key, separator, text = value.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{value!r} is not KEY=VALUE")
    return _key(key), _node_value(text)


def _taint(value: str) -> tuple[str, str]:
    key, _, text = value.partition("=")
    return _key(key), _node_value(text)


def _key(key: str) -> str:
    if not re.fullmatch(NODE_KEY.pattern, key):
        raise argparse.ArgumentTypeError(f"{key!r} is no key: {NODE_KEY.rule}")
    return key


def _node_value(value: str) -> str:
    if len(value) > LONGEST_NODE_VALUE:
        raise argparse.ArgumentTypeError(f"{value[:20]!r}... has {len(value)} characters; a value has at most {LONGEST_NODE_VALUE}")
    if (sign := unprintable(value)) is not None:
        raise argparse.ArgumentTypeError(f"{value!r} has {sign!r}, which cannot be printed; leave it out")
    return value


def _by_key(parser: argparse.ArgumentParser, option: str, given: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return what the option was given, by key. A key with two values is a usage error: one of them would be dropped."""
    found: dict[str, str] = {}
    for key, value in given:
        if found.setdefault(key, value) != value:
            parser.error(f"argument {option}: {key!r} is given twice, as {found[key]!r} and {value!r}; a node has one value for each key")
    return found
