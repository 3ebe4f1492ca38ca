"""A wheel of the Paceline that runs here, packed from its own files, and the versions of what it runs with."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.resources
import io
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Folders of the package that no agent needs.
LEFT_OUT = frozenset({"dashboard", "examples", "__pycache__", "node_modules"})
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files make the same wheel
#: An environment comes with its own.
NOT_PINNED = frozenset({"paceline", "pip", "setuptools", "wheel"})
_REQUIRED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class OwnWheel:
    """The wheel of this program, and the versions of what it runs with."""

    name: str
    contents: bytes
    constraints: str

    def key(self, choices: Sequence[str]) -> str:
        """Name the contents together with `constraints` and what a pool has chosen: an environment of that key needs no installing."""
        return hashlib.sha256(self.contents + "\0".join([self.constraints, *choices]).encode()).hexdigest()[:20]


def own_wheel() -> OwnWheel:
    """Pack the package that is imported here. The same files make the same wheel, whenever it is packed."""
    distribution = importlib.metadata.distribution("paceline")
    stem = f"paceline-{distribution.version}"
    files = dict(_package_files(Path(str(importlib.resources.files("paceline")))))
    info = f"{stem}.dist-info"
    files[f"{info}/METADATA"] = (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: paceline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = (distribution.read_text("entry_points.txt") or "").encode()
    record = "".join(f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return OwnWheel(f"{stem}-py3-none-any.whl", packed.getvalue(), _constraints(distribution))


def _package_files(package: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the package by their names in a wheel. In a checkout its rooms are links, which are followed."""
    for folder, folders, names in os.walk(package, followlinks=True):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in sorted(names):
            if not name.endswith((".pyc", ".so")):
                path = Path(folder) / name
                yield f"paceline/{path.relative_to(package).as_posix()}", path.read_bytes()


def _constraints(distribution: importlib.metadata.Distribution) -> str:
    """The versions here of everything that is required, so that nodes get the same ones."""
    waiting, found = list(distribution.requires or []), dict[str, str]()
    while waiting:
        name = _REQUIRED_NAME.match(waiting.pop())
        key = re.sub(r"[-_.]+", "-", name.group().lower()) if name else ""
        if not key or key in found:
            continue
        try:
            required = importlib.metadata.distribution(key)
        except importlib.metadata.PackageNotFoundError:
            continue
        found[key] = required.version
        waiting += required.requires or []
    return "".join(f"{name}=={version.partition('+')[0]}\n" for name, version in sorted(found.items()) if name not in NOT_PINNED)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
