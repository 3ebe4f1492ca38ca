"""Names of places in object stores: `s3://bucket/prefix` and its kin. Pure text, so that specs and command lines can check it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType

#: The stores that a URL may name, by scheme.
SCHEMES: Mapping[str, str] = MappingProxyType({"s3": "S3 and its kin", "gs": "Google Cloud Storage", "az": "Azure Blob Storage"})
FILE = "file"
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
#: What all three stores allow in the name of a bucket, and how long it is.
LEAST_BUCKET, LONGEST_BUCKET = 2, 254
_BUCKET = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{{LEAST_BUCKET - 1},{LONGEST_BUCKET - 1}}}")


@dataclass(frozen=True)
class ObjectLocation:
    """A prefix or an object in a bucket, which is used as a Path is: `location / name`, `.name`, `.parent`, `str(location)`."""

    scheme: str
    bucket: str
    key: str  # without slashes at its ends; empty: the bucket itself

    def __truediv__(self, name: str) -> ObjectLocation:
        return ObjectLocation(self.scheme, self.bucket, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        return "/".join(filter(None, (f"{self.scheme}://{self.bucket}", self.key)))

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectLocation:
        return ObjectLocation(self.scheme, self.bucket, self.key.rpartition("/")[0])

    @property
    def bucket_url(self) -> str:
        return f"{self.scheme}://{self.bucket}"


#: A folder that this machine may see, or a prefix in an object store.
Place = Path | ObjectLocation


def is_url(text: str) -> bool:
    """Whether `text` is meant as a URL, of whatever scheme."""
    return _URL.match(text) is not None


def refusal(text: str) -> str | None:
    """Why `text` is neither an absolute path nor the URL of a place that can be used, as the end of a sentence about it; None: it is one."""
    found = _URL.fullmatch(text)
    if found is None:
        return None if PurePosixPath(text).is_absolute() else f"is not an absolute path, nor one of {_known()}"
    scheme, rest = found["scheme"], found["rest"]
    if scheme == FILE:
        return None if rest.startswith("/") else "has no absolute path; write file:///folder, or the path alone"
    if scheme not in SCHEMES:
        return f"has the unknown scheme {scheme}://; use one of {_known()}, or an absolute path"
    bucket, _, key = rest.partition("/")
    if "@" in bucket:
        return "has credentials in it, which everybody who sees the job could read; leave them to the environment of its nodes"
    if not bucket:
        return f"names no bucket; write {scheme}://BUCKET/PREFIX"
    if not _BUCKET.fullmatch(bucket):
        allowed = f"{LEAST_BUCKET} to {LONGEST_BUCKET} letters, digits, '.', '_' and '-', first a letter or digit"
        return f"names the bucket {bucket[:80]!r}: a bucket has {allowed}"
    if any(part in ("", ".", "..") for part in key.strip("/").split("/")) and key.strip("/"):
        return "has an empty part, . or .. in its prefix; write it out"
    if any(sign in key for sign in "?#%") or not key.isprintable():
        return "has one of ? # % or an unprintable character in its prefix; use another name"
    return None


def parse(text: str) -> ObjectLocation:
    """Parse the URL of a place in an object store. Raises ValueError with the reason."""
    if (why := refusal(text)) is not None:
        raise ValueError(f"{text} {why}")
    found = _URL.fullmatch(text)
    if found is None or found["scheme"] == FILE:
        raise ValueError(f"{text} is a path, not a place in an object store")
    bucket, _, key = found["rest"].partition("/")
    return ObjectLocation(found["scheme"], bucket, key.strip("/"))


def place_at(text: str) -> Place:
    """The place that `text` names: a path, `file://` and a path, or a URL. Raises ValueError for a URL that cannot be used."""
    if text.startswith(f"{FILE}:///"):
        return Path(text.removeprefix(f"{FILE}://"))
    return parse(text) if is_url(text) else Path(text)


def _known() -> str:
    return ", ".join(f"{scheme}://BUCKET/PREFIX" for scheme in SCHEMES)
