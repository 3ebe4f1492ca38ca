"""A folder is reached as the kernel would, and the owners of the links on the way are known."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from paceline.cluster.agent.reached_folder import reach

ANOTHER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")


def is_at(path: Path, expected: Path) -> bool:
    with reach(path, distrusts_links=True) as found:
        return os.path.samestat(os.fstat(found.descriptor), expected.stat())


def test_links_of_every_form_are_followed(tmp_path: Path) -> None:
    inner = tmp_path / "disk" / "inner"
    inner.mkdir(parents=True)
    targets: dict[str, str | Path] = {
        "absolute": inner,
        "relative": "disk/inner",
        "up": "disk/../disk/./inner",
        "again": "absolute",
        "root": "/",
    }
    for name, target in targets.items():
        (tmp_path / name).symlink_to(target)
    for name in ("disk/inner", "absolute", "relative", "up", "again"):
        assert is_at(tmp_path / name, inner), name
    assert is_at(tmp_path / "root", Path("/"))
    assert is_at(tmp_path / "root" / inner.relative_to("/"), inner)
    assert is_at(Path("/"), Path("/"))


def test_what_is_no_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "round").symlink_to("about")
    (tmp_path / "about").symlink_to("round")
    (tmp_path / "nowhere").symlink_to("missing")
    before = len(os.listdir("/proc/self/fd"))
    for name, code in {"file": errno.ENOTDIR, "file/below": errno.ENOTDIR, "round": errno.ELOOP, "nowhere": errno.ENOENT}.items():
        with pytest.raises(OSError, match=os.strerror(code)), reach(tmp_path / name, distrusts_links=False):
            pass
    assert len(os.listdir("/proc/self/fd")) == before, "no descriptor is left open"


@needs_root
def test_whose_link_led_there_is_known_where_links_are_distrusted(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        folder.mkdir()
    os.chown(theirs, ANOTHER, ANOTHER)
    (tmp_path / "root-link").symlink_to(".")
    (tmp_path / "link").symlink_to("root-link")
    os.lchown(tmp_path / "link", ANOTHER, ANOTHER)
    for path, distrusts, owners in (
        (tmp_path / "root-link", True, ()),
        (tmp_path / "link", True, (ANOTHER,)),
        (tmp_path / "link", False, ()),
    ):
        with reach(path, distrusts_links=distrusts) as found:
            assert found.link_owners == frozenset(owners)
            for name in ("theirs", "ours"):
                descriptor = os.open(name, os.O_RDONLY, dir_fd=found.descriptor)
                try:
                    if name == "ours" and owners:
                        with pytest.raises(PermissionError, match="symbolic link of another user"):
                            found.require_leads_to(descriptor)
                    else:
                        found.require_leads_to(descriptor)
                finally:
                    os.close(descriptor)
