"""Which files differ between two bundles."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from paceline.bundles.archive import pack
from paceline.bundles.changes import BundleDifference, difference, fingerprints
from paceline.bundles.errors import DamagedBundleError
from paceline.bundles.listing import list_files
from tests.paceline.bundles.test_listing import make


def packed(folder: Path) -> io.BytesIO:
    into = io.BytesIO()
    pack(list_files(folder), into)
    return into


def test_contents_modes_and_links_count_and_times_do_not(tmp_path: Path) -> None:
    make(tmp_path, **{"same.py": "1", "changed.py": "1", "run.sh": "1", "gone.py": "1", "pkg/a.py": "1"})
    (tmp_path / "link").symlink_to("same.py")
    before = fingerprints(packed(tmp_path))
    assert difference(before, fingerprints(packed(tmp_path))) == BundleDifference((), (), ())
    make(tmp_path, **{"changed.py": "2", "new.py": "1"})
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "gone.py").unlink()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("pkg/a.py")
    os.utime(tmp_path / "same.py", (1, 1))
    after = fingerprints(packed(tmp_path))
    assert difference(before, after) == BundleDifference(("new.py",), ("gone.py",), ("changed.py", "link", "run.sh"))


def test_what_is_no_bundle_is_refused() -> None:
    with pytest.raises(DamagedBundleError):
        fingerprints(io.BytesIO(b"no archive"))
