"""What a rendezvous store's clients and its server say: the frames and messages that `store_server` describes. No torch."""

from __future__ import annotations

import struct

import msgspec

MAX_FRAME_BYTES = 16 << 20
MAX_HELLO_BYTES = 4 << 10  # of a client that has not proved its membership
LENGTH = struct.Struct(">I")


class StoreFrameTooLargeError(ValueError):
    """A frame over MAX_FRAME_BYTES, or a hello over MAX_HELLO_BYTES."""


class Message(msgspec.Struct, frozen=True, array_like=True, tag=str.lower):
    """On the wire: a msgpack array whose first element is the lower-case class name."""


class Hello(Message, frozen=True):
    job_id: str
    generation: int
    token: str
    timeout: float  # seconds to wait for a generation that the server has not heard of yet


class Set(Message, frozen=True):
    key: str
    value: bytes


class Get(Message, frozen=True):
    key: str
    timeout: float


class Add(Message, frozen=True):
    key: str
    amount: int


class Check(Message, frozen=True):
    keys: tuple[str, ...]


class Wait(Message, frozen=True):
    keys: tuple[str, ...]
    timeout: float


class CompareSet(Message, frozen=True):
    key: str
    expected: bytes
    desired: bytes


class DeleteKey(Message, frozen=True):
    key: str


class NumKeys(Message, frozen=True):
    pass


class Ok(Message, frozen=True):
    value: bytes | int | bool | None = None


class Refused(Message, frozen=True):
    """Not a member, or no longer: the server closes the connection."""

    message: str


class TimedOut(Message, frozen=True):
    message: str


class Invalid(Message, frozen=True):
    """The request cannot be carried out (`add` on a value that is not a number, ...); the connection goes on."""

    message: str


Request = Hello | Set | Get | Add | Check | Wait | CompareSet | DeleteKey | NumKeys
Reply = Ok | Refused | TimedOut | Invalid

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode(message: Request | Reply) -> bytes:
    """A whole frame: length, then message."""
    payload = _encoder.encode(message)
    return LENGTH.pack(check_length(len(payload))) + payload


def decode_request(payload: bytes) -> Request:
    return _requests.decode(payload)


def decode_reply(payload: bytes) -> Reply:
    return _replies.decode(payload)


def check_length(length: int, limit: int = MAX_FRAME_BYTES) -> int:
    if length > limit:
        raise StoreFrameTooLargeError(f"store frame of {length} bytes; the limit is {limit}: pass large data through files")
    return length
