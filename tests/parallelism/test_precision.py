"""The precision of matrix products under autocast."""

from __future__ import annotations

import pytest
import torch

from paceline.parallelism.precision import autocast, unscale_gradients

CPU = torch.device("cpu")


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_matrices_are_multiplied_in_the_precision(precision: str, dtype: torch.dtype) -> None:
    layer = torch.nn.Linear(2, 2)
    with autocast(precision, CPU):  # type: ignore[arg-type]
        assert layer(torch.ones(1, 2)).dtype == dtype
    assert layer.weight.dtype == torch.float32


def test_unscaling_by_a_power_of_two_changes_no_digit() -> None:
    first, second, unused = (torch.nn.Parameter(torch.randn(5)) for _ in range(3))
    gradients = [torch.randn(5), torch.randn(5)]
    first.grad, second.grad = (gradient * 2.0**16 for gradient in gradients)
    unscale_gradients([first, unused, second], 2.0**16)
    torch.testing.assert_close([first.grad, second.grad], gradients, rtol=0, atol=0)
    assert unused.grad is None
