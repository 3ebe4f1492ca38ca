from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.training.data import stdlib_text
from paceline.training.errors import InvalidInputError
from paceline.training.schema.data import StdlibText


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_windows_are_consecutive_bytes_that_overlap_by_one(cache: Path) -> None:
    train, _ = stdlib_text.load(StdlibText(), 16, cache)
    (windows,) = train.batch(torch.tensor([0, 1, len(train) - 1]), None)
    assert windows.shape == (3, 17)
    assert windows[0, -1] == windows[1, 0]
    assert bytes(windows[0].tolist()) == bytes(train.text[:17])


def test_held_out_files_are_a_tenth_and_no_training_text(cache: Path) -> None:
    train, held_out = stdlib_text.load(StdlibText(holdout=0.1), 128, cache)
    share = held_out.text.size / (train.text.size + held_out.text.size)
    assert 0.03 < share < 0.2
    assert bytes(held_out.text[1000:1100]) not in bytes(train.text)


def test_the_cache_is_built_once(cache: Path) -> None:
    stdlib_text.load(StdlibText(), 16, cache)
    before = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    stdlib_text.load(StdlibText(), 32, cache)
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == before
    assert not list(cache.glob("*.tmp"))


def test_another_context_is_no_other_text(cache: Path) -> None:
    assert len(stdlib_text.load(StdlibText(), 16, cache)[0]) == pytest.approx(2 * len(stdlib_text.load(StdlibText(), 32, cache)[0]), abs=1)


def test_tests_and_packages_are_left_out() -> None:
    import sysconfig

    files = stdlib_text.source_files(Path(sysconfig.get_path("stdlib")))
    assert len(files) > 300
    assert not [file for file in files if stdlib_text.EXCLUDED & set(file.parts[-3:-1])]


def test_a_context_longer_than_the_text_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"0123456789")
    with pytest.raises(InvalidInputError, match="context=10 is longer than the 10 bytes"):
        stdlib_text.TextWindows(tmp_path / "short", 10)
