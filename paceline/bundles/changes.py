"""Which files differ between two bundles: both are read as streams, and of each file a hash is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from paceline.bundles.archive import open_tar


@dataclass(frozen=True)
class BundleDifference:
    """The paths that one bundle has and the other has not, and those with another content, mode or kind; each in order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def fingerprints(packed: IO[bytes]) -> dict[str, bytes]:
    """Return a hash of each file and link of a bundle, by its path. Raises DamagedBundleError, or TarError for what is no archive."""
    found = dict[str, bytes]()
    with open_tar(packed) as tar:
        for member in tar:
            digest = hashlib.sha256(f"{member.type!r} {bool(member.mode & 0o100)} {member.linkname}\0".encode())
            content = tar.extractfile(member) if member.isreg() else None
            while content is not None and (data := content.read(1 << 20)):
                digest.update(data)
            found[member.name] = digest.digest()
            tar.members.clear()  # tarfile keeps each
    return found


def difference(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> BundleDifference:
    """Compare two bundles by the hashes of their files."""
    return BundleDifference(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(sorted(path for path in before.keys() & after.keys() if before[path] != after[path])),
    )
