"""Where a path lies by the mounts of a node."""

from __future__ import annotations

import pytest

from paceline.cluster.policy.mounts import SHARED, NodeMounts

OWN = "machine m"


@pytest.mark.parametrize(
    ("mounts", "place"),
    [
        (NodeMounts("m"), OWN),
        (NodeMounts("m", ("/data",)), SHARED),
        (NodeMounts("m", ("/data/ckpt",)), SHARED),
        (NodeMounts("m", ("/database", "/data/ckpt/deeper", "/mnt")), OWN),
        (NodeMounts("m", ("/",)), SHARED),  # it has its root from a network file system
        (NodeMounts("m", ("/",), ("/data",)), OWN),  # and a disk of its own
        (NodeMounts("m", ("/", "/data/ckpt"), ("/data",)), SHARED),
    ],
    ids=["nothing", "mount above", "the folder itself", "names that begin alike", "root", "disk in it", "mount in that"],
)
def test_the_nearest_mount_decides(mounts: NodeMounts, place: str) -> None:
    assert mounts.place_of("/data/ckpt") == mounts.place_of("/data/ckpt/") == place
