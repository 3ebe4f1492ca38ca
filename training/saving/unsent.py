"""What compressed gradients have not sent yet (`distributed/compression`), beside a checkpoint's tensors: a file for each rank.

A world of as many ranks goes on from its own files; another one deals them out, so that nothing is lost and nothing counts twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from paceline.distributed.compression.compressible import RESIDUAL
from paceline.distributed.compression.residuals import deal_out
from paceline.distributed.reduction import ReductionState
from paceline.training.errors import CheckpointCorruptError
from paceline.training.saving.tensor_files import write_tensors

_FILE = re.compile(r"__(\d+)_unsent\.safetensors")


def write(folder: Path, rank: int, state: ReductionState) -> None:
    """Write what a rank has to remember into the checkpoint; no file where that is nothing."""
    tensors = {f"{kind}/{name}": tensor for kind, of_kind in state.items() for name, tensor in of_kind.items()}
    if tensors:
        write_tensors(folder / f"__{rank}_unsent.safetensors", tensors)


def read(folder: Path, rank: int, ranks: int) -> ReductionState:
    """Return what a rank of a world of `ranks` goes on from. Raises CheckpointCorruptError."""
    files = sorted((int(found[1]), path) for path in folder.glob("__*_unsent.safetensors") if (found := _FILE.fullmatch(path.name)))
    if not files:
        return {}
    try:
        states = [_by_kind(load_file(path)) for _, path in files]
    except (OSError, SafetensorError) as error:
        raise CheckpointCorruptError(f"{folder}: {error}") from error
    mine = states[rank] if len(states) == ranks else {RESIDUAL: deal_out([each.get(RESIDUAL, {}) for each in states], ranks, rank)}
    common = {kind: of_kind for kind, of_kind in states[0].items() if kind != RESIDUAL}  # equal on every rank
    return {**common, **mine}


def with_newcomers(state: ReductionState, newcomers: Collection[int]) -> ReductionState:
    """Return what to go on from beside ranks that have nothing to remember: residuals are each rank's own, all else must be equal on every rank."""
    return {kind: of_kind for kind, of_kind in state.items() if kind == RESIDUAL} if newcomers else state


def _by_kind(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        found.setdefault(kind, {})[name] = tensor
    return found
