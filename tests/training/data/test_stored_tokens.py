"""A token set in an object store is fetched once by each node, is what it should be, and goes when there is no room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.objects import node_copies
from paceline.objects.client import Patience
from paceline.objects.errors import ObjectStoreError
from paceline.objects.location import parse
from paceline.training.data import stored_tokens, token_set
from paceline.training.data.corpus import open_corpus
from paceline.training.errors import InvalidInputError
from paceline.training.reporting.failures import kind_of
from paceline.training.schema.data import Tokens
from tests.object_store import BUCKET, CREDENTIALS, FaultyStore, object_store
from tests.training.data.token_sets import make, write_texts

PLACE = f"s3://{BUCKET}/sets/text"
QUICK = Patience(connect_seconds=5.0, request_seconds=20.0, retry_seconds=5.0, retries=2)
LARGE = 1 << 30


def tokenize_texts(folder: Path, documents: int = 40) -> Path:
    write_texts(folder.with_name(f"{folder.name}-in"), documents)
    make(folder, [folder.with_name(f"{folder.name}-in")], portion_bytes=1500)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for key in server.names():
        server.remove(key)
    server.calm()
    folder = tokenize_texts(tmp_path / "text")
    for path in folder.iterdir():
        server.ask("PUT", f"/sets/text/{path.name}", path.read_bytes())
    node_copies._held.clear()
    return server


def fetched(store: FaultyStore, cache: Path, most_bytes: int = LARGE) -> Path:
    return stored_tokens.folder_of(parse(PLACE), store.options, cache, most_bytes, QUICK)


def with_the_hash(store: FaultyStore, cache: Path, sha256: str) -> Path:
    return stored_tokens.folder_of(parse(PLACE), store.options, cache, LARGE, QUICK, sha256)


def test_the_windows_are_those_of_the_folder(store: FaultyStore, tmp_path: Path) -> None:
    here = open_corpus(Tokens(path=str(tmp_path / "text"), holdout=0), 8, 257, tmp_path / "cache")
    there = open_corpus(Tokens.model_validate({"path": PLACE, "holdout": 0, "options": store.options}), 8, 257, tmp_path / "cache")
    assert len(here.train) == len(there.train) > 0
    assert token_set.digest(tmp_path / "text") == token_set.digest(next((tmp_path / "cache" / stored_tokens.FOLDER).iterdir()))


def test_a_node_fetches_a_set_once(store: FaultyStore, tmp_path: Path) -> None:
    first = fetched(store, tmp_path / "cache")
    shards = [request.path for request in store.seen if ".tokens" in request.path]
    assert fetched(store, tmp_path / "cache") == first
    assert [request.path for request in store.seen if ".tokens" in request.path] == shards


def test_a_set_that_has_changed_in_the_store_is_another_copy(store: FaultyStore, tmp_path: Path) -> None:
    first = fetched(store, tmp_path / "cache")
    for path in tokenize_texts(tmp_path / "other", 60).iterdir():
        store.ask("PUT", f"/sets/text/{path.name}", path.read_bytes())
    assert fetched(store, tmp_path / "cache") != first


def test_what_was_used_longest_ago_goes_first_and_never_what_is_in_use(store: FaultyStore, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = fetched(store, cache)
    old = first.with_name("0" * 64)
    shutil.copytree(first, old)
    assert node_copies.evict(cache / stored_tokens.FOLDER, 0, token_set.MANIFEST) == [old.name]
    assert first.exists()


def test_a_damaged_set_is_refused_and_a_missing_one_told(store: FaultyStore, tmp_path: Path) -> None:
    store.flip_a_bit(next(key for key in store.names("sets/text") if key.endswith(".tokens")))
    with pytest.raises(InvalidInputError, match="do not match the SHA-256"):
        fetched(store, tmp_path / "cache")
    for key in store.names("sets"):
        store.remove(key)
    with pytest.raises(InvalidInputError, match="is no token set"):
        fetched(store, tmp_path / "cache")


def test_a_store_that_is_out_for_a_while_does_not_end_the_job_as_one_that_cannot_run(store: FaultyStore, tmp_path: Path) -> None:
    store.fault = lambda _: "fail"
    with pytest.raises(ObjectStoreError, match="cannot be read now") as caught:
        fetched(store, tmp_path / "cache")
    assert kind_of(caught.value, 2) == "exception"  # worth a restart


def test_a_store_that_refuses_ends_the_job_and_names_the_credentials(store: FaultyStore, tmp_path: Path) -> None:
    store.fault = lambda _: "forbid"
    with pytest.raises(InvalidInputError, match="--pass-env"):
        fetched(store, tmp_path / "cache")


def test_a_set_with_a_hash_that_is_here_needs_no_store(store: FaultyStore, tmp_path: Path) -> None:
    first = fetched(store, tmp_path / "cache")
    store.fault = lambda _: "fail"
    assert with_the_hash(store, tmp_path / "cache", token_set.digest(first)) == first
    with pytest.raises(ObjectStoreError):
        with_the_hash(store, tmp_path / "cache", "0" * 64)
