"""Loading a checkpoint runs none of its code and reads none but its own files, whoever made it."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader

from paceline.distributed.solo_group import SoloGroup
from paceline.monitoring.file_hashes import describe
from paceline.training.errors import CheckpointCorruptError, CheckpointSaveError, InvalidInputError
from paceline.training.own_loop.trainer import Trainer
from paceline.training.saving import checkpoint, export, safe_reading, shards, weights
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import open_directory
from scripts.torture.saver import checkpoints_at, digest, state_at
from tests.training.own_loop.loops import build, optimizer_of, own_batch


class Intruder:
    """Pickled, it is a command that makes a file where it is read."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self._trace),)


def saved(folder: Path) -> Path:
    checkpoints = checkpoints_at(folder / "job", 1)
    open_directory(checkpoints, ())
    return Path(str(checkpoint.save(checkpoints, state_at(1), {}).directory))


def seal_anew(folder: Path, rename: dict[str, str] | None = None) -> None:
    """As whoever gives a checkpoint away can: all hashes are right."""
    manifest = manifests.read(folder)
    files = {(rename or {}).get(name, name): describe(folder / name) for name in manifest.files}
    manifests.write(folder, msgspec.structs.replace(manifest, files=files))


def restore(folder: Path) -> None:
    checkpoint.load(SoloGroup(), state_at(0), folder, checkpoint.verify(SoloGroup(), folder))


def load_own(folder: Path) -> None:
    with Trainer(build()) as trainer:
        trainer.load_checkpoint(optimizer_of(trainer.model), folder)


def export_it(folder: Path) -> None:
    export.export(folder, folder.parent / "out")


@pytest.mark.parametrize("read", [restore, load_own, export_it])
def test_an_index_that_would_run_a_command_is_refused_by_the_name_of_what_it_calls(tmp_path: Path, read: Callable[[Path], None]) -> None:
    folder, trace = saved(tmp_path), tmp_path / "was_here"
    (folder / ".metadata").write_bytes(pickle.dumps(Intruder(trace)))
    seal_anew(folder)
    with pytest.raises(CheckpointCorruptError, match=r"posix\.mkdir"):
        read(folder)
    assert not trace.exists()


def with_a_value(folder: Path, value: object) -> None:
    """Put `value` in the place of a small value of the optimizer, as torch saves one."""
    index = FileSystemReader(folder).read_metadata()
    stream = io.BytesIO()
    torch.save(value, stream)
    (folder / "__9_0.distcp").write_bytes(stream.getvalue())
    for key, place in index.storage_data.items():
        if key.fqn.endswith(".lr"):
            place.relative_path, place.offset, place.length = "__9_0.distcp", 0, len(stream.getvalue())
    (folder / ".metadata").write_bytes(pickle.dumps(index))
    manifest = manifests.read(folder)
    files = {name: describe(folder / name) for name in [*manifest.files, "__9_0.distcp"]}
    manifests.write(folder, msgspec.structs.replace(manifest, files=files))


def test_a_small_value_that_would_run_a_command_is_refused(tmp_path: Path) -> None:
    folder, trace = saved(tmp_path), tmp_path / "was_here"
    with_a_value(folder, Intruder(trace))
    with pytest.raises(CheckpointCorruptError, match=r"\.lr.*posix\.mkdir"):
        restore(folder)
    assert not trace.exists()


def test_a_small_value_of_an_older_version_is_read(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    with_a_value(folder, np.float64(0.125))
    state = state_at(0)
    checkpoint.load(SoloGroup(), state, folder, checkpoint.verify(SoloGroup(), folder))
    assert {group["lr"] for group in state.optimizer.param_groups} == {0.125}


@pytest.mark.parametrize(
    "value",
    [None, True, 7, -(2**70), 0.1, "text", b"\0", (0.9, 0.99), [1, (2,)], {"a": [1]}, {1, 2}, 1j, OrderedDict(a=1), Counter("aab"),
     torch.float16, torch.Size([1, 2]), np.float32(0.1), np.array([1, 2])],
    ids=repr,
)  # fmt: skip
def test_values_that_optimizers_and_schedules_keep_come_back_as_they_were(value: object) -> None:
    stream = io.BytesIO()
    torch.save(value, stream)
    safe_reading.require_readable("lr", stream)
    found = safe_reading.small_value("lr", stream.getvalue())
    assert type(found) is type(value)
    assert np.array_equal(found, value) if isinstance(value, np.ndarray) else found == value  # type: ignore[arg-type]


class Schedule:
    """Of a user: its state is an object of the user's own."""

    def state_dict(self) -> dict[str, object]:
        return {"kept": Path("somewhere"), "mine": Mine()}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        raise AssertionError("never reached")


class Mine:
    """A class of the user's own."""


def test_a_value_that_could_not_be_loaded_again_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    with Trainer(build(), checkpoint_dir=str(tmp_path)) as trainer:
        optimizer = optimizer_of(trainer.model)
        trainer.train_step(own_batch(0, 1), optimizer, nn.functional.mse_loss, 0)
        with pytest.raises(CheckpointSaveError) as raised:
            trainer.save_checkpoint(optimizer, scheduler=Schedule())
    assert "scheduler.kept" in str(raised.value)
    assert "add_safe_globals" in str(raised.value)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "..", "a/b", "", "a\0b"])
def test_a_manifest_that_names_a_file_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    folder = saved(tmp_path)
    seal_anew(folder, {"__0_0.distcp": name})
    with pytest.raises(CheckpointCorruptError, match="not the name of a file in it"):
        manifests.read(folder)


def test_a_link_that_leads_out_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder / "__0_0.distcp").rename(tmp_path / "elsewhere")
    (folder / "__0_0.distcp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointCorruptError, match="leads out of"):
        restore(folder)


def test_an_index_that_points_to_a_file_without_a_hash_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    index = FileSystemReader(folder).read_metadata()
    for place in index.storage_data.values():
        place.relative_path = "../../elsewhere"
    (folder / ".metadata").write_bytes(pickle.dumps(index))
    seal_anew(folder)
    with pytest.raises(CheckpointCorruptError, match=r"\.\./\.\./elsewhere.*not in its manifest"):
        restore(folder)


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps({"a": 1}), pickle.dumps(Path("/tmp"))])
def test_an_index_that_is_none_is_damage(tmp_path: Path, content: bytes) -> None:
    folder = saved(tmp_path)
    (folder / ".metadata").write_bytes(content)
    seal_anew(folder)
    with pytest.raises(CheckpointCorruptError, match=r"\.metadata"):
        restore(folder)


@pytest.mark.parametrize("name", ["../other/model.safetensors", "/etc/passwd", "a/b.safetensors"])
def test_an_index_of_weights_that_names_a_file_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / weights.INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(InvalidInputError, match="not the name of a file in that folder"):
        weights.find_weights(tmp_path)


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    folder, state = saved(tmp_path), state_at(0)
    checkpoint.load(SoloGroup(), state, folder, checkpoint.verify(SoloGroup(), folder))
    assert digest(state) == digest(state_at(1))
    assert [group["betas"] for group in state.optimizer.param_groups] == [(0.9, 0.999)]


def test_a_model_of_another_shape_is_no_damage(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    with pytest.raises(InvalidInputError, match="does not fit"):
        shards.read({"model": nn.Linear(1, 1).state_dict()}, folder)
