"""On a machine with NVIDIA GPUs: the rows of `scripts/gpu_check.sh` without which nothing works, small and quick."""

from __future__ import annotations

import pytest
import torch

from scripts.gpu_check.machine import Machine, RowSkippedError
from scripts.gpu_check.rows import ROWS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.version.cuda is None, reason=f"torch {torch.__version__} is a build without CUDA"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU that torch could use"),
    pytest.mark.timeout(300),
]

#: One GPU is enough for these; those that need two say so and are skipped.
ESSENTIAL = (
    "group_of_one",
    "group_of_all",
    "abort",
    "single",
    "bf16",
    "checkpointing_full",
    "ddp",
    "fsdp",
    "top_k_resumed",
    "power_sgd_resumed",
    "readings",
    "telemetry",
)


@pytest.mark.parametrize("name", ESSENTIAL)
def test_row(name: str) -> None:
    try:
        seen = ROWS[name].check(Machine("cuda", torch.cuda.device_count(), quick=True))
    except RowSkippedError as reason:
        pytest.skip(str(reason))
    assert seen.text
