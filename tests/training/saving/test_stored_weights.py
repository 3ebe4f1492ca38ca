"""Weights in an object store: a node fetches each version once, whole, and a job starts from them as from a folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from paceline.objects import node_copies
from paceline.objects.client import Patience
from paceline.objects.errors import ObjectStoreError
from paceline.objects.location import parse
from paceline.training.errors import InvalidInputError
from paceline.training.saving import export, stored_weights
from paceline.training.saving.weights import INDEX, SINGLE, find_weights, write_file, write_index
from paceline.training.spec.job import JobSpec
from tests.object_store import BUCKET, CREDENTIALS, FaultyStore, object_store
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

QUICK = Patience(connect_seconds=5.0, request_seconds=20.0, retry_seconds=5.0, retries=2)
LARGE = 1 << 30
FOLDER = f"s3://{BUCKET}/models/small"


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(server: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for key in server.names():
        server.remove(key)
    server.calm()
    node_copies._held.clear()
    return server


def put(store: FaultyStore, folder: Path, name: str = "small") -> None:
    for path in folder.iterdir():
        store.ask("PUT", f"/models/{name}/{path.name}", path.read_bytes())


def in_one_file(folder: Path, value: float = 1.0) -> Path:
    folder.mkdir(exist_ok=True)
    write_file(folder / SINGLE, {"a": torch.full((3,), value)}, {})
    return folder


def in_two_files(folder: Path) -> Path:
    folder.mkdir()
    write_file(folder / "model-00001-of-00002.safetensors", {"a": torch.ones(3)}, {})
    write_file(folder / "model-00002-of-00002.safetensors", {"b": torch.ones(2)}, {})
    write_index(folder, {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}, 20)
    return folder


def fetched(store: FaultyStore, cache: Path, url: str = FOLDER, most_bytes: int = LARGE) -> Path:
    return stored_weights.copy_of(parse(url), store.options, cache, most_bytes, QUICK)


def downloads(store: FaultyStore) -> list[str]:
    return [request.path for request in store.seen if request.method == "GET" and request.path.endswith(".safetensors")]


def test_a_folder_and_a_file_are_fetched_once(store: FaultyStore, tmp_path: Path) -> None:
    put(store, in_two_files(tmp_path / "two"))
    copy = fetched(store, tmp_path / "cache")
    assert sorted(find_weights(copy).shapes) == ["a", "b"]
    assert fetched(store, tmp_path / "cache") == copy
    assert len(downloads(store)) == 2
    file = fetched(store, tmp_path / "cache", f"{FOLDER}/model-00002-of-00002.safetensors")
    assert (file.is_file(), sorted(find_weights(file).shapes)) == (True, ["b"])


def test_weights_that_have_changed_in_the_store_are_another_copy(store: FaultyStore, tmp_path: Path) -> None:
    put(store, in_one_file(tmp_path / "one"))
    first = fetched(store, tmp_path / "cache")
    put(store, in_one_file(tmp_path / "one", 2.0))
    second = fetched(store, tmp_path / "cache")
    assert [find_weights(copy).read("a").tolist() for copy in (first, second)] == [[1.0] * 3, [2.0] * 3]


def test_a_copy_that_was_left_half_fetched_is_completed(store: FaultyStore, tmp_path: Path) -> None:
    put(store, in_two_files(tmp_path / "two"))
    copy = fetched(store, tmp_path / "cache")
    (copy / stored_weights.COMPLETE).unlink()
    (copy / "model-00001-of-00002.safetensors").unlink()
    assert sorted(find_weights(fetched(store, tmp_path / "cache")).shapes) == ["a", "b"]
    assert len(downloads(store)) == 3


def test_the_copy_used_longest_ago_goes_when_there_is_no_room(store: FaultyStore, tmp_path: Path) -> None:
    put(store, in_one_file(tmp_path / "one"))
    first = fetched(store, tmp_path / "cache")
    for descriptor in node_copies._held.values():
        os.close(descriptor)  # the process that used it has ended
    node_copies._held.clear()
    put(store, in_one_file(tmp_path / "one", 2.0))
    second = fetched(store, tmp_path / "cache", most_bytes=1)
    assert (first.exists(), second.exists()) == (False, True)


def test_what_is_missing_or_no_weights_is_told_and_a_store_that_is_out_is_worth_a_restart(store: FaultyStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"initial_weights={FOLDER}: .*model.safetensors is not there"):
        fetched(store, tmp_path / "cache")
    store.ask("PUT", f"/models/small/{INDEX}", b'{"weight_map": {"a": "../secret"}}')
    with pytest.raises(InvalidInputError, match="is not the name of a file in that folder"):
        fetched(store, tmp_path / "cache")
    store.fault = lambda _: "forbid"
    with pytest.raises(InvalidInputError, match="--pass-env"):
        fetched(store, tmp_path / "cache")
    store.fault = lambda _: "fail"
    with pytest.raises(ObjectStoreError, match="cannot be read now"):
        fetched(store, tmp_path / "cache")


def test_a_store_of_the_kind_of_the_checkpoints_has_their_options(
    store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    put(store, in_one_file(tmp_path / "one"))
    checkpoint = {"directory": f"s3://{BUCKET}/runs", "options": store.options}
    spec = JobSpec.model_validate(tiny_gpt(steps=1) | {"initial_weights": FOLDER, "checkpoint": checkpoint})
    assert find_weights(stored_weights.on_this_node(spec, FOLDER)).read("a").tolist() == [1.0] * 3
    assert stored_weights.on_this_node(spec, str(tmp_path)) == tmp_path


def test_a_job_begins_as_it_does_with_the_same_folder(store: FaultyStore, make_job: MakeJob, tmp_path: Path) -> None:
    first = make_job(tiny_gpt(steps=5, dropout=0.0), "first")
    first.run(1)
    weights = Path(export.export(Path(first.newest_first()[0]), tmp_path / "weights").folder)
    name = secrets.token_hex(8)  # the cache of ranks outlives a test
    put(store, weights, name)
    spec = tiny_gpt(2, steps=2, dropout=0.0) | {"environment": {"variables": {**CREDENTIALS, "AWS_ENDPOINT_URL": store.url}}}
    here = make_job(spec | {"initial_weights": str(weights)}, "here").run(2)[0]
    there = make_job(spec | {"initial_weights": f"s3://{BUCKET}/models/{name}"}, "there").run(2)[0]
    plain = make_job(spec, "plain").run(2)[0]
    assert (here.exit_code, there.exit_code) == (0, 0), there.output
    assert f"starts with the weights in s3://{BUCKET}/models/{name}" in there.output
    assert there.curve("loss") == here.curve("loss") != plain.curve("loss")
    assert len(downloads(store)) == 1
