"""Objects come whole, however large they are and however slow their store is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.objects import client
from paceline.objects.client import ObjectClient, Patience
from paceline.objects.errors import ObjectLostError
from paceline.objects.location import parse
from tests.object_store import BUCKET, CREDENTIALS, FaultyStore, Request, object_store

PART = 1 << 20
CONTENT = os.urandom(4 * PART + 7)
#: Less than the whole object takes of a slow store, and more than a part of it.
SHORT = Patience(connect_seconds=5.0, request_seconds=1.2, retry_seconds=1.0, retries=2)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(client, "PART_BYTES", PART)
    with object_store() as store:
        store.ask("PUT", "/job/weights", CONTENT)
        yield store


def objects(store: FaultyStore, patience: Patience | None = None) -> ObjectClient:
    return ObjectClient(parse(f"s3://{BUCKET}/job"), store.options, patience)


def test_an_object_that_takes_longer_than_a_request_may_comes_all_the_same(store: FaultyStore, tmp_path: Path) -> None:
    """A checkpoint that was larger than two minutes of its rank's share of the link was never restored."""
    store.fault = lambda request: "slow" if request.is_for("GET", "weights") else None
    objects(store, SHORT).download("weights", tmp_path / "weights")
    assert (tmp_path / "weights").read_bytes() == CONTENT


def test_an_object_that_is_replaced_while_it_is_read_is_not_mixed_with_the_former_one(store: FaultyStore, tmp_path: Path) -> None:
    newer = os.urandom(len(CONTENT))
    pieces = objects(store).pieces("weights")
    assert next(pieces) == CONTENT[:PART]
    store.ask("PUT", "/job/weights", newer)
    with pytest.raises(ObjectLostError, match="was replaced while it was read"):
        next(pieces)
    older = iter([CONTENT])

    def replace_once(request: Request) -> None:
        if request.is_for("GET", "weights") and (content := next(older, None)):
            store.ask("PUT", "/job/weights", content)

    store.after = replace_once
    objects(store).download("weights", tmp_path / "weights")
    assert (tmp_path / "weights").read_bytes() == CONTENT


def test_an_empty_object_is_one(store: FaultyStore, tmp_path: Path) -> None:
    store.ask("PUT", "/job/empty", b"")
    objects(store).download("empty", tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""
