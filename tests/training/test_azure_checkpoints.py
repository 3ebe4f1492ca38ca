"""Objects and checkpoints in a blob store as Azure's, over TLS: the same transaction as in S3."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from paceline.distributed.solo_group import SoloGroup
from paceline.objects.client import ObjectClient, Patience
from paceline.objects.errors import ObjectAccessError, ObjectNotFoundError
from paceline.objects.location import parse
from paceline.training import restoring
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.saving import checkpoint
from paceline.training.saving.checkpoint_directory import CheckpointDirectory, open_directory
from paceline.training.saving.object_storage import ObjectStorage
from scripts.torture.damage import Said
from scripts.torture.saver import SPEC, digest, state_at
from tests.azure_store import CONTAINER, AzureStore, azure_store, needs_azurite

pytestmark = needs_azurite
QUICK = Patience(connect_seconds=5.0, request_seconds=30.0, retry_seconds=20.0, retries=3)
PART = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureStore]:
    with azure_store(tmp_path_factory.mktemp("azurite")) as store:
        yield store


@pytest.fixture
def store(server: AzureStore, monkeypatch: pytest.MonkeyPatch) -> AzureStore:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


def test_objects_come_and_go_whole(store: AzureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.objects.client.PART_BYTES", PART)
    objects, file = ObjectClient(parse(f"az://{CONTAINER}/job"), store.options, QUICK), tmp_path / "weights"
    file.write_bytes(os.urandom(3 * PART + 7))
    objects.put("small", b"few")
    objects.upload("step-1/weights", file)
    assert objects.get("small") == b"few"
    assert objects.sizes() == {"small": 3, "step-1/weights": 3 * PART + 7}
    objects.download("step-1/weights", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == file.read_bytes()
    version = objects.version("small")
    objects.put("small", b"new")
    assert objects.version("small") != version
    objects.delete(["small", "never", "step-1/weights"])
    assert objects.sizes() == {}
    with pytest.raises(ObjectNotFoundError, match="job/small is not there"):
        objects.get("small")


def test_a_checkpoint_is_the_same_on_another_machine(store: AzureStore, tmp_path: Path) -> None:
    def checkpoints(staging: str, generation: int) -> CheckpointDirectory:
        storage = ObjectStorage(parse(f"az://{CONTAINER}/run"), store.options, tmp_path / staging, generation, 0, QUICK)
        found = CheckpointDirectory(storage, "job", generation, SPEC, SoloGroup())
        open_directory(found, ())
        return found

    saved = checkpoint.save(checkpoints("here", 1), state_at(3), {"loss": 0.5})
    there = checkpoints("there", 2)
    (found,) = checkpoint.unreported(there, ())
    assert (found.announcement, str(found.directory)) == (saved.announcement, f"az://{CONTAINER}/run/step-3.g1")
    said, state = Said(), state_at(0)
    restoring.restore(there, [found.directory], state, cast("Telemetry", said), required=True)
    assert digest(state) == digest(state_at(3))


def test_a_wrong_key_is_told_as_one(store: AzureStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"another").decode())
    with pytest.raises(ObjectAccessError, match="credentials in this process's environment are wrong"):
        ObjectClient(parse(f"az://{CONTAINER}/job"), store.options, QUICK).put("small", b"few")
