"""One bucket of an object store, through obstore (the Rust crate `object_store`): whole objects, retried, checked, deleted.

Credentials and whatever else an option does not say come from this process's environment, under the names that the stores' own tools
use (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY ...), or from the machine's own
identity in its cloud. Failed requests are tried again, with growing delays and jitter, for `Patience.retry_seconds`; only then is an error raised.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.objects.errors import ObjectAccessError, ObjectLostError, ObjectNotFoundError, ObjectStoreError, ObjectTooLargeError
from paceline.objects.location import ObjectLocation

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

#: A file of more bytes than this goes up, and comes down, in parts of so many: each is a request of its own.
PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4
#: How often a file is sent that the store has acknowledged and does not have.
UPLOAD_ATTEMPTS = 3
#: Keys of `options` by scheme, each with the name that the store's client has for it.
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3": {"endpoint": "endpoint", "region": "region"},
    "gs": {"endpoint": "base_url"},
    "az": {"endpoint": "endpoint", "account": "account_name"},
}
#: Variables of which one set is enough, by scheme.
_CREDENTIALS: Mapping[str, Sequence[Sequence[str]]] = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
        ("AWS_SKIP_SIGNATURE",),
    ),
    "gs": (
        ("GOOGLE_APPLICATION_CREDENTIALS",),
        ("GOOGLE_SERVICE_ACCOUNT",),
        ("GOOGLE_SERVICE_ACCOUNT_PATH",),
        ("GOOGLE_SERVICE_ACCOUNT_KEY",),
    ),
    "az": (
        ("AZURE_STORAGE_ACCOUNT_KEY",),
        ("AZURE_STORAGE_SAS_TOKEN",),
        ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"),
        ("AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_TENANT_ID"),
    ),
}

#: What a region or an account may be: it becomes a part of the host's name, where / or @ would lead to another host.
_HOST_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")

#: Where a client without credentials looks for those of its machine.
_IDENTITY_SERVICES = ("169.254.169.254", "metadata", "/latest/api/token")


@dataclass(frozen=True)
class Patience:
    """How long a store may take, in seconds."""

    connect_seconds: float = 10.0
    request_seconds: float = 60.0  # one request with its body, of PART_BYTES at most
    retry_seconds: float = 120.0  # all attempts of one request together
    retries: int = 10


#: For a look before the first step, and for what somebody waits for.
HASTY = Patience(connect_seconds=5.0, request_seconds=20.0, retry_seconds=15.0, retries=3)


class ObjectClient:
    """Objects below one location, by their names relative to it. Safe for use from several threads.

    Every method raises ObjectStoreError or one of its kin, once the retries are spent.
    """

    def __init__(self, location: ObjectLocation, options: Mapping[str, str] | None = None, patience: Patience | None = None) -> None:
        self.location, self.options = location, options or {}
        self._store = _open(location, self.options, patience or Patience())

    def put(self, name: str, content: bytes) -> None:
        """Store a small object. Once this returns, the store has been asked for it again and has answered with these bytes."""
        with self._explained(name):
            import obstore

            for _ in range(UPLOAD_ATTEMPTS):
                obstore.put(self._store, self._key(name), content, use_multipart=False)
                if self._found(name, self.get) == content:
                    return
        raise self._lost(name)

    def upload(self, name: str, path: Path) -> None:
        """Store a file, a large one in parts. Once this returns, the store has told the file's size when asked for it."""
        size = path.stat().st_size
        with self._explained(name):
            import obstore

            for _ in range(UPLOAD_ATTEMPTS):
                obstore.put(self._store, self._key(name), path, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
                if self._found(name, self.size) == size:
                    return
        raise self._lost(name)

    def get(self, name: str, limit: int | None = None) -> bytes:
        """Read a small object whole. Raises ObjectTooLargeError, before anything is read, over `limit` bytes."""
        with self._explained(name):
            import obstore

            found = obstore.get(self._store, self._key(name))
            if limit is not None and found.meta["size"] > limit:
                raise ObjectTooLargeError(f"{self.location / name} has {found.meta['size']} bytes, of {limit} at most")
            return bytes(found.bytes())

    def pieces(self, name: str) -> Iterator[bytes]:
        """Read an object part by part, so that a large one may take longer than `Patience` has for a request. Raises ObjectLostError where another
        object has taken its place meanwhile."""
        with self._explained(name):
            import obstore

            meta = obstore.head(self._store, self._key(name))
            for start in range(0, meta["size"], PART_BYTES):
                part = obstore.get(self._store, self._key(name), options={"range": (start, min(start + PART_BYTES, meta["size"]))})
                if _version_of(part.meta) != _version_of(meta):
                    raise ObjectLostError(f"{self.location / name} was replaced while it was read")
                yield bytes(part.bytes())

    def download(self, name: str, path: Path) -> None:
        """Write an object to `path`. A stream that breaks off is begun anew, a few times; what came may still be damaged: compare its hash."""
        for attempt in range(UPLOAD_ATTEMPTS):
            try:
                with open(path, "wb") as file:
                    for piece in self.pieces(name):
                        file.write(piece)
            except (ObjectNotFoundError, ObjectAccessError):
                raise
            except ObjectStoreError:
                if attempt + 1 == UPLOAD_ATTEMPTS:
                    raise
            else:
                return

    def size(self, name: str) -> int:
        """The bytes of an object."""
        with self._explained(name):
            import obstore

            return int(obstore.head(self._store, self._key(name))["size"])

    def version(self, name: str) -> str:
        """The store's name for this very content of the object: its ETag, else its time and size."""
        with self._explained(name):
            import obstore

            return _version_of(obstore.head(self._store, self._key(name)))

    def exists(self, name: str) -> bool:
        return self._found(name, self.size) is not None

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """The bytes of every object whose name begins with `prefix` and a slash, by the rest of its name."""
        below = "/".join(filter(None, (self.location.key, prefix)))
        with self._explained(prefix):
            import obstore

            found: dict[str, int] = {}
            for page in obstore.list(self._store, prefix=f"{below}/" if below else None):
                for meta in page:
                    found[str(meta["path"])[len(below) + 1 if below else 0 :]] = int(meta["size"])
            return found

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. One that is not there is no error."""
        if not names:
            return
        with self._explained(names[0]):
            import obstore

            try:
                obstore.delete(self._store, [self._key(name) for name in names])
            except FileNotFoundError:
                for name in names:
                    self._found(name, lambda each: obstore.delete(self._store, self._key(each)))

    def _key(self, name: str) -> str:
        return (self.location / name).key

    def _found(self, name: str, ask: Callable[[str], Any]) -> Any:
        """What `ask` answers; None for an object that is not there."""
        try:
            return ask(name)
        except FileNotFoundError:  # obstore's own, or ours
            return None
        except ObjectNotFoundError:
            return None

    def _lost(self, name: str) -> ObjectLostError:
        return ObjectLostError(
            f"{self.location / name}: the store acknowledged it {UPLOAD_ATTEMPTS} times and does not have it, or has other bytes; see its log"
        )

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Turn what obstore raises into errors that name the object and the way out."""
        try:
            yield
        except ObjectStoreError:
            raise
        except Exception as error:
            raise explained(error, self.location / name if name else self.location) from error


def _version_of(meta: ObjectMeta) -> str:
    return str(meta.get("e_tag") or f"{meta['last_modified'].timestamp()}-{meta['size']}")


def explained(error: Exception, location: ObjectLocation) -> Exception:
    """The error of ours for one of obstore's; another error as it is."""
    import obstore.exceptions as raised

    words = _first_words(error)
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"{location} is not there ({words}); if the bucket {location.bucket} does not exist, create it")
    if isinstance(error, raised.PermissionDeniedError | raised.UnauthenticatedError):
        return ObjectAccessError(f"{location} is refused ({words}); {_missing(location.scheme)}")
    if isinstance(error, raised.BaseError):
        missing = missing_credentials(location.scheme)
        if missing is not None and any(place in words for place in _IDENTITY_SERVICES):
            return ObjectAccessError(f"{location} cannot be asked for: {missing}, and this machine has no identity in a cloud ({words})")
        return ObjectStoreError(f"{location} cannot be reached ({words})")
    return error


def missing_credentials(scheme: str) -> str | None:
    """A sentence about the variables that hold credentials, where this process has none of them; None where it has some."""
    environment = dict(os.environ)
    if any(all(environment.get(name) for name in names) for names in _CREDENTIALS[scheme]):
        return None
    first = " and ".join(_CREDENTIALS[scheme][0])
    return f"{first} {'are' if len(_CREDENTIALS[scheme][0]) > 1 else 'is'} not set in this process"


def _missing(scheme: str) -> str:
    return missing_credentials(scheme) or "the credentials in this process's environment are wrong, or may not do this"


def _first_words(error: Exception) -> str:
    """The cause, in one line: obstore appends a dump of its internals."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:500]


def _open(location: ObjectLocation, options: Mapping[str, str], patience: Patience) -> ObjectStore:
    if importlib.util.find_spec("obstore") is None:
        raise ObjectStoreError(f"{location} needs the package obstore, which this Python does not have; install it: pip install obstore")
    from obstore.store import from_url

    known = OPTIONS[location.scheme]
    if unknown := sorted(set(options) - set(known)):
        raise ObjectStoreError(f"{location}: unknown option {unknown[0]}; there are {', '.join(known)}")
    for name in ("region", "account"):
        if name in options and not _HOST_PART.match(options[name]):
            raise ObjectStoreError(f"{location}: {options[name]!r} is no {name}; one has letters, digits, '.', '_' and '-'")
    config = {known[name]: value for name, value in options.items()}
    if location.scheme == "s3" and "region" not in config and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & set(os.environ):
        config["region"] = "us-east-1"
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=patience.request_seconds),
        "connect_timeout": timedelta(seconds=patience.connect_seconds),
        "allow_http": location.scheme == "s3",  # a store in the own network: S3's keys sign requests and are not sent
    }
    retry: dict[str, Any] = {"max_retries": patience.retries, "retry_timeout": timedelta(seconds=patience.retry_seconds)}
    with_errors: Any = from_url
    try:
        store: ObjectStore = with_errors(location.bucket_url, config=config, client_options=client, retry_config=retry)
    except Exception as error:
        raise explained(error, location) from error
    return store
