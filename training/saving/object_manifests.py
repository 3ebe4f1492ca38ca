"""Checkpoints in an object store, read and deleted by whoever may: ranks, agents, the coordinator. No torch in here."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from paceline.objects.client import ObjectClient, Patience
from paceline.objects.errors import ObjectLostError, ObjectNotFoundError, ObjectStoreError, ObjectTooLargeError
from paceline.objects.location import ObjectLocation
from paceline.objects.node_copies import fetch
from paceline.training.errors import CheckpointCorruptError, CheckpointUnreachableError
from paceline.training.saving import manifest as manifests
from paceline.training.saving.manifest import MANIFEST, MAX_MANIFEST_BYTES, Manifest


def delete(client: ObjectClient, name: str) -> None:
    """Delete the checkpoint `name` below the client's location: its manifest first, so that half of one is debris. One that is gone is no
    error."""
    files = client.sizes(name)
    if MANIFEST in files:
        client.delete([f"{name}/{MANIFEST}"])
    client.delete([f"{name}/{file}" for file in files if file != MANIFEST])


def read(place: ObjectLocation, options: Mapping[str, str], patience: Patience | None = None) -> tuple[Manifest, bytes]:
    """Read the manifest of a checkpoint in a store, and return its bytes too. Raises CheckpointCorruptError or CheckpointUnreachableError."""
    client = ObjectClient(place.parent, options, patience)
    try:
        content = client.get(f"{place.name}/{MANIFEST}", MAX_MANIFEST_BYTES)
    except ObjectNotFoundError as error:
        raise _not_there(client, place) from error
    except ObjectTooLargeError as error:
        raise CheckpointCorruptError(f"{place}: no readable {MANIFEST} ({error})") from error
    except ObjectStoreError as error:
        raise CheckpointUnreachableError(f"{place}: no readable {MANIFEST} ({error})") from error
    return manifests.decoded(content, str(place), place.name), content


def _not_there(client: ObjectClient, place: ObjectLocation) -> CheckpointCorruptError:
    """Where other files of the checkpoint are, a missing manifest is damage; where there is nothing, this may be another store."""
    with contextlib.suppress(ObjectStoreError):
        if client.sizes(place.name):
            return CheckpointCorruptError(f"{place}: no readable {MANIFEST} (the store does not have it)")
    return CheckpointUnreachableError(f"{place}: the store that this node reaches has nothing there")


def bring(place: ObjectLocation, options: Mapping[str, str], folder: Path, first: int = 0) -> Path:
    """Have a checkpoint of a store in `folder / place.name` on this node, which its processes share; return that folder.

    Several processes do it together: each begins with another file, its `first`, and waits for those that others fetch. Raises
    CheckpointCorruptError or CheckpointUnreachableError.
    """
    manifest, content = read(place, options)
    local, client = folder / place.name, ObjectClient(place, options)
    local.mkdir(parents=True, exist_ok=True)
    names = sorted(manifest.files)
    start = first % len(names) if names else 0
    for name in [*names[start:], *names[:start]]:
        try:
            fetch(client, name, local / name, manifest.files[name])
        except (ObjectNotFoundError, ObjectLostError) as error:
            raise CheckpointCorruptError(str(error)) from error
        except ObjectStoreError as error:
            raise CheckpointUnreachableError(str(error)) from error
    scratch = local / f".{MANIFEST}.{first}"
    scratch.write_bytes(content)
    scratch.replace(local / MANIFEST)
    return local
