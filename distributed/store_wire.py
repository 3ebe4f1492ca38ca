"""The frames and messages between the rendezvous store's clients and its server, as `store_server` describes them. No torch."""

from __future__ import annotations

import struct
from typing import Annotated

import msgspec

MAX_FRAME_BYTES = 16 << 20
MAX_HELLO_BYTES = 4 << 10  # for a client that has not proved its membership
LENGTH = struct.Struct(">I")
#: How long a request waits. A timeout that is not a number, in the event loop's heap of timers, would have all the agent's timers run out of order.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class StoreFrameTooLargeError(ValueError):
    """A frame is larger than MAX_FRAME_BYTES, or a hello larger than MAX_HELLO_BYTES."""


class Message(msgspec.Struct, frozen=True, array_like=True, tag=str.lower):
    """The base of all messages: on the wire a msgpack array whose first element is the class name in lower case."""


class Hello(Message, frozen=True):
    """The first message of a client, which proves its membership of a generation."""

    job_id: str
    generation: int
    token: str
    timeout: Seconds  # seconds to wait for a generation that the server does not know yet


class Set(Message, frozen=True):
    """Set a key to a value."""

    key: str
    value: bytes


class Get(Message, frozen=True):
    """Get the value of a key, waiting for it up to `timeout` seconds."""

    key: str
    timeout: Seconds


class Add(Message, frozen=True):
    """Add to the number that is the value of a key."""

    key: str
    amount: int


class Check(Message, frozen=True):
    """Ask whether all keys exist."""

    keys: tuple[str, ...]


class Wait(Message, frozen=True):
    """Wait up to `timeout` seconds until all keys exist."""

    keys: tuple[str, ...]
    timeout: Seconds


class CompareSet(Message, frozen=True):
    """Set a key if its value is the expected one."""

    key: str
    expected: bytes
    desired: bytes


class DeleteKey(Message, frozen=True):
    """Delete a key and its value."""

    key: str


class NumKeys(Message, frozen=True):
    """Ask for the number of keys."""


class Ok(Message, frozen=True):
    """The request was carried out; `value` is its result."""

    value: bytes | int | bool | None = None


class Refused(Message, frozen=True):
    """The client is not, or no longer, a member; the server closes the connection."""

    message: str


class TimedOut(Message, frozen=True):
    """The key did not appear in time; the connection stays open."""

    message: str


class Invalid(Message, frozen=True):
    """The request cannot be carried out (`add` on a value that is not a number, ...); the connection stays open."""

    message: str


Request = Hello | Set | Get | Add | Check | Wait | CompareSet | DeleteKey | NumKeys
Reply = Ok | Refused | TimedOut | Invalid

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    """Return a whole frame: length, then message."""
    payload = _encoder.encode(message)
    return LENGTH.pack(check_length(len(payload))) + payload


def decode_request(payload: bytes) -> Request:
    return _requests.decode(payload)


def decode_reply(payload: bytes) -> Reply:
    return _replies.decode(payload)


def check_length(length: int, limit: int = MAX_FRAME_BYTES) -> int:
    """Return `length`. Raises `StoreFrameTooLargeError` if it is over `limit` bytes."""
    if length > limit:
        raise StoreFrameTooLargeError(f"store frame of {length} bytes; the limit is {limit}: pass large data through files")
    return length
