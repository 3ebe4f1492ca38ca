from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import sys
import tarfile
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.training.data import cifar10, fetched
from paceline.training.data.fetched import Remote
from paceline.training.errors import InvalidInputError
from paceline.training.schema.data import Cifar10
from tests.training.specs import PER_BATCH, write_batches

#: For what is in a folder already, nothing is put there.
CACHE = Path("/nonexistent")
RANKS = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_batches(tmp_path)
    return tmp_path


def test_all_batches_are_read(folder: Path) -> None:
    train, test = cifar10.load(Cifar10(path=str(folder)), CACHE)
    assert (len(train), len(test)) == (5 * PER_BATCH, PER_BATCH)
    images, labels = test.batch(torch.arange(PER_BATCH), None)
    assert (images.shape, images.dtype, labels.dtype) == ((PER_BATCH, 3, 32, 32), torch.float32, torch.int64)
    raw = pickle.loads((folder / "test_batch").read_bytes(), encoding="bytes")
    pixel = raw[b"data"][3, 1024 + 5 * 32 + 7] / 255  # green, row 5, column 7
    assert images[3, 1, 5, 7].item() == pytest.approx((pixel - cifar10.MEAN[1]) / cifar10.DEVIATION[1], rel=1e-4, abs=1e-6)
    assert labels.tolist() == raw[b"labels"]


def test_augmentation_depends_on_the_generator_alone(folder: Path) -> None:
    train, _ = cifar10.load(Cifar10(path=str(folder)), CACHE)
    chosen = torch.arange(8)
    first, again, other = (train.batch(chosen, torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(train.batch(chosen, None)[0], train.images[chosen])


def test_augmented_images_are_shifted_and_mirrored_originals() -> None:
    image = torch.arange(1, 1 + 32 * 32, dtype=torch.float32).view(1, 1, 32, 32).expand(64, 3, 32, 32)
    crops = cifar10.augment(image, torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(image[0], (4,) * 4)
    views = [v for t in range(9) for s in range(9) for v in (padded[:, t : t + 32, s : s + 32], padded[:, t : t + 32, s : s + 32].flip(2))]
    assert all(any(torch.equal(crop, view) for view in views) for crop in crops)


def test_a_missing_folder_says_what_to_do() -> None:
    with pytest.raises(InvalidInputError, match=r"data_batch_1.*unpack cifar-10-python.tar.gz"):
        cifar10.load(Cifar10(path="/nonexistent"), CACHE)


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("/tmp/paceline-unpickled",)


@pytest.mark.parametrize("content", [pickle.dumps(Evil()), b"no pickle", b"", pickle.dumps({b"labels": [1]}), pickle.dumps([1])])
def test_whatever_is_no_batch_is_refused_and_runs_nothing(folder: Path, content: bytes) -> None:
    (folder / "data_batch_3").write_bytes(content)
    with pytest.raises(InvalidInputError):
        cifar10.load(Cifar10(path=str(folder)), CACHE)
    assert not Path("/tmp/paceline-unpickled").exists()


def test_without_the_datasets_package_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'paceline.hf.'"):
        cifar10.load(Cifar10(dataset="uoft-cs/cifar10"), tmp_path)


@pytest.mark.parametrize(("takes_it", "given"), [(True, {"trust_remote_code": False}), (False, {})])
def test_no_script_of_a_data_set_is_run(monkeypatch: pytest.MonkeyPatch, takes_it: bool, given: dict[str, bool], tmp_path: Path) -> None:
    asked: list[dict[str, bool]] = []

    def old(name: str, trust_remote_code: bool | None = None) -> None:
        asked.append({"trust_remote_code": bool(trust_remote_code)} if trust_remote_code is not None else {})
        raise OSError("no network here")

    def new(name: str, **options: bool) -> None:
        asked.append(options)
        raise OSError("no network here")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=old if takes_it else new))
    with pytest.raises(InvalidInputError, match="no network here"):
        cifar10.load(Cifar10(dataset="uoft-cs/cifar10"), tmp_path)
    assert asked == [given]


@pytest.fixture
def archive(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is fetched as the published archive."""
    archive = tmp_path / "server" / "cifar-10-python.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as packed:
        for name in (*cifar10.TRAIN_FILES, *cifar10.TEST_FILES):
            packed.add(folder / name, f"{cifar10.ARCHIVE_FOLDER}/{name}")
    monkeypatch.setattr(cifar10, "ARCHIVE", Remote(archive.as_uri(), hashlib.md5(archive.read_bytes()).hexdigest()))
    return archive


def test_the_published_archive_is_fetched_and_unpacked_once(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract_all = tarfile.TarFile.extractall
    monkeypatch.setattr(
        tarfile.TarFile, "extractall", lambda tar, path: extract_all(tar, path)
    )  # as in Debian 12's Python: without filters
    cache = tmp_path / "cache"
    train, _ = cifar10.load(Cifar10(), cache)
    archive.unlink()
    again, _ = cifar10.load(Cifar10(), cache)
    assert torch.equal(train.images, again.images)
    monkeypatch.setattr(cifar10, "ARCHIVE", Remote("http://127.0.0.1:9/cifar-10-python.tar.gz", ""))
    with pytest.raises(InvalidInputError, match=r"cannot be fetched .*; set data.path to a folder"):
        cifar10.load(Cifar10(), tmp_path / "empty")


def test_the_ranks_of_a_node_fetch_the_archive_once_together(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each download is told of by a file, since the processes share nothing else."""
    cache, told = tmp_path / "cache", tmp_path / "told"
    told.mkdir()
    download = fetched.download

    def telling(url: str, target: Path) -> str:
        tempfile.mkstemp(dir=told)
        return download(url, target)

    monkeypatch.setattr(fetched, "download", telling)
    with multiprocessing.get_context("fork").Pool(RANKS) as ranks:
        found = ranks.map_async(cifar10.published, [cache] * RANKS, chunksize=1).get(timeout=60)
    assert found == [cache / cifar10.ARCHIVE_FOLDER] * RANKS
    assert len(list(told.iterdir())) == 1
    assert {path.name for path in cache.iterdir()} == {cifar10.ARCHIVE_FOLDER, ".lock"}
