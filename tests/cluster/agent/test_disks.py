"""Two paths to one folder have one identity, and no other folder has it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from paceline.cluster.agent import disks
from paceline.cluster.agent.disks import MOST_MOUNTS, disk_of, file_system_of, own_mounts, shared_mounts


@pytest.fixture
def boot_id(tmp_path: Path) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("machine-1\n")
    return path


@pytest.fixture(autouse=True)
def local_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the tests run."""
    monkeypatch.setattr(disks, "file_system_of", lambda path: "ext4")


def test_paths_to_one_folder_are_equal_and_others_are_not(tmp_path: Path, boot_id: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    one = disk_of(tmp_path / "one", boot_id)
    assert one
    assert disk_of(tmp_path / "link", boot_id) == one
    assert disk_of(tmp_path / "other", boot_id) != one


def test_the_same_path_on_another_machine_is_another_folder(tmp_path: Path, boot_id: Path) -> None:
    here = disk_of(tmp_path, boot_id)
    boot_id.write_text("machine-2\n")
    assert disk_of(tmp_path, boot_id) != here


def test_what_others_may_see_and_what_is_not_known_is_not_told(tmp_path: Path, boot_id: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk_of(tmp_path / "missing", boot_id) is None
    assert disk_of(tmp_path, tmp_path / "no-boot-id") is None
    for shared in ("nfs4", "ceph", "fuse.sshfs", ""):
        monkeypatch.setattr(disks, "file_system_of", lambda path, kind=shared: kind)
        assert disk_of(tmp_path, boot_id) is None


def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    assert file_system_of(Path("/proc/self")) == "proc"
    assert file_system_of(Path("/")) != "proc"


def test_mounts_that_others_may_see_are_told_without_those_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"/": "ext4", "/proc": "proc", "/run/user/1": "fuse.portal", "/mnt/all": "nfs4", "/mnt/own": "xfs", "/procedures": "ceph"}
    mounts = [SimpleNamespace(mountpoint=path, fstype=kind) for path, kind in table.items()]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
    assert shared_mounts() == ("/mnt/all", "/procedures")
    mounts += [SimpleNamespace(mountpoint=f"/mnt/{number}", fstype="nfs4") for number in range(MOST_MOUNTS)]
    assert shared_mounts() is None


def test_disks_of_the_machine_in_a_shared_mount_are_told_and_what_is_mounted_over_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with its root from a network file system, and a disk in it."""
    table = [
        ("/", "nfs4"),
        ("/scratch", "nfs4"),
        ("/scratch", "xfs"),
        ("/run/lock", "tmpfs"),
        ("/var/lib/layers/1", "overlay"),
        ("/net/home", "nfs4"),
    ]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [SimpleNamespace(mountpoint=path, fstype=kind) for path, kind in table])
    assert shared_mounts() == ("/", "/net/home")
    assert own_mounts() == ("/scratch",)
    table[0] = ("/", "ext4")
    assert own_mounts() == ()


def test_a_folder_that_the_machine_exports_may_be_seen_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"/": "ext4", "/srv/data": "xfs"}
    monkeypatch.setattr(
        psutil, "disk_partitions", lambda all: [SimpleNamespace(mountpoint=path, fstype=kind) for path, kind in table.items()]
    )
    exports = tmp_path / "etab"
    assert shared_mounts(exports) == ()
    exports.write_text("/srv/data\t10.0.0.0/24(rw,sync)\n/srv/data\t10.1.0.0/24(ro)\n/home/a\\040b\t*(rw)\n# nothing\n\n")
    assert shared_mounts(exports) == ("/home/a b", "/srv/data")
    assert own_mounts(exports) == ()
