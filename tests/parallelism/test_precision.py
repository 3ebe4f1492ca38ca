from __future__ import annotations

import pytest
import torch

from parallelism.precision import autocast

CPU = torch.device("cpu")


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_matrices_are_multiplied_in_the_precision(precision: str, dtype: torch.dtype) -> None:
    layer = torch.nn.Linear(2, 2)
    with autocast(precision, CPU):  # type: ignore[arg-type]
        assert layer(torch.ones(1, 2)).dtype == dtype
    assert layer.weight.dtype == torch.float32


def test_fp16_is_refused() -> None:
    with pytest.raises(ValueError, match="use bf16 or fp32"):
        autocast("fp16", CPU)
