"""Files of tensors, as safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from paceline.monitoring.files import sync_file


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, str] | None = None) -> None:
    """Write a file of tensors durably, readable by whoever may read other new files here. Raises OSError or SafetensorError.

    safetensors puts a file in the place of `path` that its owner alone can read, whatever the umask is.
    """
    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=None if notes is None else dict(notes))
    path.chmod(mode)
    sync_file(path)
