"""What an agent tells the keeper of an exec session: lines of JSON on its standard input, which stays open for as long as the agent lives."""

from __future__ import annotations

import msgspec

from paceline.monitoring.lines import encode_line


class KeeperOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a keeper needs to run a command beside a rank, or the reason why it must refuse to."""

    session_id: str
    server: str  # ws(s)://host:port of the coordinator
    credential: str  # of the node
    authority: str | None = None  # for wss, as PEM: the one to believe; None: those of this machine
    node: str  # its name
    rank: int
    generation: int
    environment: dict[str, str] = {}
    directory: str = "/"
    account: str | None = None  # the user that the rank runs as; None: the agent's own
    umask: int = 0o022
    memory_limit: int | None = None  # bytes of all processes of the session together, as a rank has it
    groups: str | None = None  # below which control groups are made
    refusal: str = ""  # why nothing runs; empty: it does


class EndKeeper(msgspec.Struct, frozen=True, kw_only=True):
    """The agent ends the session: its rank has ended, or the agent leaves."""

    code: str
    message: str


_order = msgspec.json.Decoder(KeeperOrder)
_end = msgspec.json.Decoder(EndKeeper)


def encode_for_keeper(message: KeeperOrder | EndKeeper) -> bytes:
    """The message as a line."""
    return encode_line(message)


def decode_order(line: bytes) -> KeeperOrder:
    return _order.decode(line)


def decode_end(line: bytes) -> EndKeeper:
    return _end.decode(line)
