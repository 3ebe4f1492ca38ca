"""How an answer of the coordinator becomes one of the types of `api_types.py`."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Answer = TypeVar("Answer")


def parsed(document: Any, kind: type[Answer]) -> Answer:
    """Return the decoded JSON `document` as a `kind`; fields that it does not have are ignored.

    Raises msgspec.ValidationError where the document lacks a field that the command line cannot do without, or has one of another type.
    """
    return msgspec.convert(document, kind)
