"""Weights in an object store that jobs start from: each node fetches them once into its cache, under what the store says of their versions.

A file is known by its URL and by the version that the store gives it (its ETag), so that weights that change in the store are another copy. Sizes are
compared; what is damaged beyond that is refused by safetensors, or does not fit the model. Copies that were used longest ago go as those of token sets do.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.distributed import env
from paceline.objects.client import ObjectClient, Patience
from paceline.objects.errors import ObjectLostError, ObjectNotFoundError
from paceline.objects.location import ObjectLocation, is_url, place_at
from paceline.objects.node_copies import alone_on_node, evict, hold
from paceline.training.errors import InvalidInputError
from paceline.training.saving.weights import INDEX, SINGLE, plain
from paceline.training.schema.object_store import options_of
from paceline.training.spec.job import JobSpec
from paceline.training.store_errors import explaining_store_errors

#: Below the node's cache.
FOLDER = "weights"
SUFFIX = ".safetensors"
#: The file that completes a copy.
COMPLETE = ".complete"
WAY_OUT = "check initial_weights, and the credentials and AWS_ENDPOINT_URL in the environment of the node's ranks (its agent's --pass-env, or secrets)"


def on_this_node(spec: JobSpec, text: str) -> Path:
    """Where this node has the weights that `text`, a path or a URL, names. A store of the kind that the job's checkpoints are in has their options.

    Raises as `copy_of` does.
    """
    place = place_at(text)
    if isinstance(place, Path):
        return place
    saved = spec.checkpoint.directory
    alike = saved is not None and is_url(saved) and saved.partition(":")[0] == place.scheme
    return copy_of(place, options_of(spec.checkpoint.options) if alike else {}, env.cache_directory(), env.data_cache_bytes())


def copy_of(place: ObjectLocation, options: Mapping[str, str], cache: Path, most_bytes: int, patience: Patience | None = None) -> Path:
    """This node's copy of the weights at a URL, fetched if it is not here: a file for the URL of one, else a folder.

    Raises InvalidInputError for weights that are missing or refused, and ObjectStoreError for a store that cannot be reached now: that is worth a
    restart.
    """
    single = place.name if place.name.endswith(SUFFIX) else None
    with explaining_store_errors(f"initial_weights={place}", WAY_OUT):
        try:
            client = ObjectClient(place.parent if single is not None else place, options, patience)
            names = [single] if single is not None else _names(client)
            versions = {name: client.version(name) for name in names}
            folder = cache / FOLDER / hashlib.sha256(json.dumps([str(client.location), sorted(versions.items())]).encode()).hexdigest()
            folder.mkdir(parents=True, exist_ok=True)
            hold(folder)
            if not (folder / COMPLETE).exists():
                _fetch(client, names, folder)
        except ObjectNotFoundError as error:
            raise InvalidInputError(
                f"initial_weights={place}: {error}; it is to be a file of safetensors, or what `paceline export` has made"
            ) from error
    os.utime(folder)
    evict(cache / FOLDER, most_bytes, COMPLETE)
    return folder / single if single is not None else folder


def _names(client: ObjectClient) -> list[str]:
    """The names of the files of a folder of weights, the index included."""
    if not client.exists(INDEX):
        return [SINGLE]
    try:
        listed = set(json.loads(client.get(INDEX))["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{client.location / INDEX} is no index of safetensors: {error!r}; export the weights again") from error
    return sorted(plain(name) for name in {*listed, INDEX})


def _fetch(client: ObjectClient, names: Sequence[str], folder: Path) -> None:
    """Fetch what is missing, by whichever process of this node comes first; the others wait for it."""
    with alone_on_node(folder / ".lock"):
        for name in names:
            if (folder / name).exists():
                continue
            scratch = folder / f".{name}.part"
            try:
                client.download(name, scratch)
                if scratch.stat().st_size != (size := client.size(name)):
                    raise ObjectLostError(f"{client.location / name}: {scratch.stat().st_size} bytes came, and the store has {size}")
                os.replace(scratch, folder / name)
            finally:
                scratch.unlink(missing_ok=True)
        (folder / COMPLETE).touch()
