"""A checkpoint's model as safetensors: `python -m paceline.training.saving.export CHECKPOINT OUTPUT`, which `paceline export` runs.

No job and no model is needed: names, shapes and types are the checkpoint's. Every hash is verified before, and what was written is read
back and compared with the checkpoint's fingerprint of its parameters: an export is the same to the last bit, or an error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from paceline.monitoring.files import make_folders, sync_folder
from paceline.objects.location import is_url, parse
from paceline.training.errors import CheckpointCorruptError, InvalidInputError, TrainingError, WeightsExistError
from paceline.training.saving import fingerprint, shards, weights
from paceline.training.saving import manifest as manifests
from paceline.training.saving.manifest import Manifest
from paceline.training.saving.object_manifests import bring
from paceline.training.saving.safe_reading import SafeReader

GIGABYTE = 1_000_000_000
#: Bytes of tensors in a file, as Hugging Face cuts them.
LIMIT = 5 * GIGABYTE
SCRATCH = ".tmp"
OPTIONS = ("endpoint", "region", "account")

Stored = Mapping[str, TensorStorageMetadata]


@dataclass(frozen=True)
class ExportedWeights:
    folder: str
    step: int
    tensors: int
    bytes: int
    files: tuple[str, ...]
    parameters_sha256: str


def export(checkpoint: Path, output: Path, limit: int = LIMIT) -> ExportedWeights:
    """Export the weights into the new folder `output`, whole or not at all. Raises InvalidInputError, CheckpointCorruptError or OSError."""
    if output.exists():
        raise WeightsExistError(f"{output} is there already; give a folder that does not exist yet")
    manifest = manifests.read(checkpoint)
    manifests.verify(checkpoint, manifest, manifest.files)
    stored = tensors_in(checkpoint)
    scratch = output.with_name(f"{output.name}{SCRATCH}")
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that broke off
    make_folders(scratch)
    try:
        files = write(checkpoint, stored, manifest, scratch, limit)
        found = require_same(scratch, manifest)
        scratch.rename(output)
        sync_folder(output.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return ExportedWeights(str(output.resolve()), manifest.step, len(stored), sum(map(bytes_of, stored.values())), tuple(files), found)


def tensors_in(checkpoint: Path) -> dict[str, TensorStorageMetadata]:
    """Return the model's tensors in a checkpoint, by name, in the order in which they were saved."""
    metadata = SafeReader(checkpoint).read_metadata()
    paths = metadata.planner_data or {}
    found = {}
    for key, entry in metadata.state_dict_metadata.items():
        part, *name = paths.get(key, (key,))
        if part != "model":
            continue
        if not isinstance(entry, TensorStorageMetadata):
            raise InvalidInputError(
                f"{checkpoint}: {key} is no tensor, and safetensors hold nothing else; leave it out of the model's state"
            )
        found[str(name[0])] = entry
    return found


def write(checkpoint: Path, stored: Stored, manifest: Manifest, folder: Path, limit: int) -> list[str]:
    """The names of the files. In memory there is never more of the model than what goes into one of them."""
    runs = weights.cut({name: bytes_of(entry) for name, entry in stored.items()}, limit)
    names = [weights.file_name(number, len(runs)) for number in range(1, len(runs) + 1)]
    for file, run in zip(names, runs, strict=True):
        weights.write_file(folder / file, read(checkpoint, stored, run), notes_of(manifest))
    if len(runs) > 1:
        places = {name: file for file, run in zip(names, runs, strict=True) for name in run}
        weights.write_index(folder, places, sum(map(bytes_of, stored.values())))
    return names


def read(checkpoint: Path, stored: Stored, names: list[str]) -> dict[str, Tensor]:
    tensors = {name: torch.empty(stored[name].size, dtype=stored[name].properties.dtype) for name in names}
    shards.read({"model": tensors}, checkpoint)
    return tensors


def bytes_of(entry: TensorStorageMetadata) -> int:
    return entry.size.numel() * entry.properties.dtype.itemsize


def notes_of(manifest: Manifest) -> dict[str, str]:
    """Return the origin of the weights, for each file's header."""
    return {
        "job_id": manifest.job_id,
        "step": str(manifest.step),
        "spec_sha256": manifest.spec_sha256,
        "parameters_sha256": manifest.parameters_sha256 or "",
    }


def require_same(folder: Path, manifest: Manifest) -> str:
    """The fingerprint of what was written."""
    written = weights.find_weights(folder)
    found = fingerprint.combine_hashes([{name: fingerprint.hash_tensor(written.read(name)) for name in written.files}])
    if manifest.parameters_sha256 not in (None, found):
        raise CheckpointCorruptError(
            f"{folder}: read back, the parameters are not those of the checkpoint (SHA-256 {found}); export it again"
        )
    return found


@contextlib.contextmanager
def checkpoint_at(place: str, options: Mapping[str, str]) -> Iterator[Path]:
    """A checkpoint's folder within the block, fetched from its object store where `place` is a URL. Raises what `bring` does."""
    if not is_url(place):
        yield Path(place)
        return
    with tempfile.TemporaryDirectory(prefix="paceline-checkpoint-") as scratch:
        yield bring(parse(place), options, Path(scratch))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="its folder, or the URL of its place in an object store")
    parser.add_argument("output", type=Path)
    parser.add_argument("--limit", type=int, default=LIMIT, help="bytes of tensors in a file")
    for option in OPTIONS:
        parser.add_argument(f"--store-{option}", help=f"checkpoint.options.{option} of the job")
    given = parser.parse_args()
    options = {name: value for name in OPTIONS if (value := getattr(given, f"store_{name}")) is not None}
    try:
        with checkpoint_at(given.checkpoint, options) as folder:
            print(json.dumps(asdict(export(folder, given.output, given.limit))))
    except (TrainingError, OSError) as error:
        print(error, file=sys.stderr)
        return command_exit_code(error)
    return 0


def command_exit_code(error: Exception) -> int:
    """Return the command line's exit code: 6 conflict, 2 refused input, 1 any other error."""
    if isinstance(error, WeightsExistError):
        return 6
    return 2 if isinstance(error, InvalidInputError) else 1


if __name__ == "__main__":
    sys.exit(main())
