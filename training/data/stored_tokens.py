"""Token sets in an object store: each node fetches one once, checks it, keeps it as long as there is room, and maps it as one of its own.

A copy lies in the cache under the SHA-256 of its manifest, so that a set that changes in the store is another copy, and the same set under another
URL is the same one. The copies that were used longest ago go when all of them together are larger than the cache may be; one that a process uses stays.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from paceline.monitoring.files import write_durably
from paceline.objects.client import ObjectClient, Patience
from paceline.objects.errors import ObjectNotFoundError
from paceline.objects.location import ObjectLocation
from paceline.objects.node_copies import alone_on_node, evict, fetch, hold
from paceline.training.data import token_set
from paceline.training.errors import InvalidInputError
from paceline.training.store_errors import explaining_store_errors

#: Below the node's cache.
FOLDER = "token-sets"
WAY_OUT = "check data.path, data.options and the credentials in the environment of the node's ranks (its agent's --pass-env)"


def folder_of(
    place: ObjectLocation,
    options: Mapping[str, str],
    cache: Path,
    most_bytes: int,
    patience: Patience | None = None,
    sha256: str | None = None,
) -> Path:
    """The folder of this node's copy of a token set, fetched if it is not here. A set that `sha256` names needs no store once it is here.

    Raises InvalidInputError for a set that is missing, damaged or refused, and ObjectStoreError for a store that cannot be reached now: that is
    worth a restart.
    """
    with explaining_store_errors(f"data.path={place}", WAY_OUT):
        try:
            folder = _here(cache, sha256) or _fetched(ObjectClient(place, options, patience), cache)
        except ObjectNotFoundError as error:
            raise InvalidInputError(
                f"{place} is no token set: {error}; make one with `paceline data tokenize` and copy its folder there, the manifest last"
            ) from error
    os.utime(folder)
    evict(cache / FOLDER, most_bytes, token_set.MANIFEST)
    return folder


def _here(cache: Path, sha256: str | None) -> Path | None:
    """The whole copy of the set with this SHA-256, held; None where there is none."""
    if sha256 is None or not (cache / FOLDER / sha256 / token_set.MANIFEST).exists():
        return None
    folder = cache / FOLDER / sha256
    hold(folder)
    return folder if (folder / token_set.MANIFEST).exists() else None


def _fetched(client: ObjectClient, cache: Path) -> Path:
    content = client.get(token_set.MANIFEST)
    folder = cache / FOLDER / hashlib.sha256(content).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    hold(folder)
    if not (folder / token_set.MANIFEST).exists():
        _fetch(client, content, folder)
    return folder


def _fetch(client: ObjectClient, manifest: bytes, folder: Path) -> None:
    """Fetch the files of a set, and put the manifest there last: with it the copy is whole."""
    scratch = folder / f".{token_set.MANIFEST}.{os.getpid()}"
    scratch.mkdir(exist_ok=True)
    try:
        (scratch / token_set.MANIFEST).write_bytes(manifest)
        listed = token_set.read(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for name, file in listed.files.items():
        if "/" in name or name in ("", ".", ".."):
            raise InvalidInputError(f"{client.location}: its manifest lists {name!r}, which is not the name of a file in it")
        fetch(client, name, folder / name, file)
    with alone_on_node(folder / f".{token_set.MANIFEST}.lock"):
        write_durably(folder / token_set.MANIFEST, manifest)
