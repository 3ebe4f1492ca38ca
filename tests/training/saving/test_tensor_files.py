"""Files of tensors: exported weights, and what compressed gradients have left out."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from paceline.distributed.compression.compressible import RESIDUAL
from paceline.training.saving import unsent, weights


def test_whoever_can_read_other_new_files_can_read_these(tmp_path: Path) -> None:
    """Their owner alone could: jobs of another account did not start with exported weights, and downloads of checkpoints broke off."""
    plain, exported = tmp_path / "plain", tmp_path / weights.SINGLE
    plain.touch()
    tensor = torch.arange(6.0).reshape(2, 3)
    weights.write_file(exported, {"a": tensor.T}, {"step": "3"})
    unsent.write(tmp_path, 1, {RESIDUAL: {"a": tensor}})
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("plain", weights.SINGLE, "__1_unsent.safetensors"), plain.stat().st_mode)
    assert torch.equal(load_file(exported)["a"], tensor.T)
