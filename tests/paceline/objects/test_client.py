"""Objects come whole, however large they are and however slow their store is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from paceline.objects import client
from paceline.objects.client import ObjectClient, Patience
from paceline.objects.errors import ObjectLostError
from paceline.objects.location import parse
from tests.object_store import BUCKET, CREDENTIALS, FaultyStore, Request, object_store

ROOT = Path(__file__).parents[3]
PART = 1 << 20
#: Of a process of its own: the URL, the endpoint and the file are its arguments.
UPLOAD = f"""
import pathlib, sys
from paceline.objects import client, location
client.PART_BYTES = {PART}
client.ObjectClient(location.parse(sys.argv[1]), {{"endpoint": sys.argv[2]}}).upload("weights", pathlib.Path(sys.argv[3]))
"""
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


def test_what_a_killed_upload_leaves_is_no_object_and_goes_by_the_rule_of_the_page(store: FaultyStore, tmp_path: Path) -> None:
    """Its parts stayed in the bucket for good: no list of objects has them, and the page said that the next start clears what a dead rank left."""
    path = tmp_path / "weights"
    path.write_bytes(CONTENT)
    process = subprocess.Popen([sys.executable, "-c", UPLOAD, f"s3://{BUCKET}/runs/job", store.url, path], cwd=ROOT)
    store.after = lambda request: process.kill() if "partNumber=" in request.path else None
    assert process.wait(60) == -signal.SIGKILL
    store.calm()
    assert store.names("runs/") == []
    (key,) = re.findall(r"<Key>([^<]*)</Key>", store.ask("GET", "?uploads").decode())
    rules = documented_rules()
    boto3.client("s3", "us-east-1", endpoint_url=store.target).put_bucket_lifecycle_configuration(
        Bucket=BUCKET, LifecycleConfiguration=rules
    )
    taken = store.ask("GET", "?lifecycle").decode()
    assert key.startswith(re.findall(r"<Prefix>([^<]*)</Prefix>", taken)[0])
    assert re.findall(r"<DaysAfterInitiation>(\d+)</DaysAfterInitiation>", taken) == ["1"]


def documented_rules() -> Any:
    """The rules of docs/object_stores.md for the directory of its example."""
    page = (ROOT / "docs" / "object_stores.md").read_text()
    assert f"directory: s3://{BUCKET}/runs\n" in page
    rules = page[page.index('    {"Rules"') :].split("\n\n")[0]
    return json.loads(rules)
