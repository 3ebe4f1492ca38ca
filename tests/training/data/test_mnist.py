"""MNIST from its files, and what is done where there are none."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from paceline.training.builtin import builtin_task
from paceline.training.data import mnist
from paceline.training.data.fetched import Remote
from paceline.training.errors import InvalidInputError
from paceline.training.models.mlp.config import MlpModel
from paceline.training.schema.data import Mnist
from paceline.training.spec.job import JobSpec
from paceline.training.task import Dataset

SIZES = (20, 20, 5, 5)


def write(folder: Path, *, packed: bool = False) -> None:
    """Four files of the published form, with few images: image n is full of n."""
    for name, size, magic in zip(mnist.NAMES, SIZES, (mnist.IMAGES, mnist.LABELS) * 2, strict=True):
        images = magic == mnist.IMAGES
        values = b"".join(bytes([number]) * 784 for number in range(size)) if images else bytes(number % 10 for number in range(size))
        content = struct.pack(f">{4 if images else 2}I", magic, size, *((28, 28) if images else ())) + values
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("packed", [False, True])
def test_its_four_files_are_read(packed: bool, tmp_path: Path) -> None:
    write(tmp_path, packed=packed)
    train, held_out = mnist.load(Mnist(path=str(tmp_path)), tmp_path)
    assert (len(train), len(held_out)) == (20, 5)
    images, labels = train.batch(torch.tensor([13]), None)
    assert images.shape == (1, 1, 28, 28)
    assert images.unique().item() == pytest.approx((13 / 255 - mnist.MEAN) / mnist.DEVIATION, rel=1e-4)
    assert labels.tolist() == [3]


def test_what_is_no_file_of_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no train-images-idx3-ubyte in .*: put train-images-idx3-ubyte and the other three there"):
        mnist.load(Mnist(path=str(tmp_path)), tmp_path)
    write(tmp_path)
    (tmp_path / mnist.NAMES[1]).write_bytes((tmp_path / mnist.NAMES[0]).read_bytes())
    with pytest.raises(InvalidInputError, match="begins with 0x803, not 0x801"):
        mnist.load(Mnist(path=str(tmp_path)), tmp_path)
    (tmp_path / mnist.NAMES[0]).write_bytes(b"no")
    with pytest.raises(InvalidInputError, match="is no file of MNIST"):
        mnist.load(Mnist(path=str(tmp_path)), tmp_path)


def test_without_a_network_the_digits_are_taken_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mnist, "FILES", (Remote("http://127.0.0.1:9/train-images-idx3-ubyte.gz", ""),))
    with pytest.raises(InvalidInputError, match=r"set data.path to a folder with MNIST's four files, or data.fallback to digits"):
        mnist.load(Mnist(), tmp_path)
    task = builtin_task(MlpModel(hidden=(8,)), Mnist(fallback="digits"), tmp_path)
    assert "WARNING no MNIST: http://127.0.0.1:9" in capfd.readouterr().out
    assert isinstance(task.train, Dataset)
    loss, _ = task.loss(task.model, task.train.batch(torch.arange(4), None))
    assert loss.item() > 0


def test_the_fallback_is_for_one_node() -> None:
    spec = {"name": "m", "model": {"kind": "mlp"}, "data": {"kind": "mnist", "fallback": "digits"}, "training": {"steps": 1}}
    JobSpec.model_validate(spec)
    with pytest.raises(ValidationError, match=r"data.fallback=digits is for jobs on one node"):
        JobSpec.model_validate(spec | {"resources": {"nodes": 2}})
