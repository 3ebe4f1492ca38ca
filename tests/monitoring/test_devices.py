from __future__ import annotations

import pytest

from paceline.monitoring.devices import model_flops_utilization, peak_of


@pytest.mark.parametrize(
    ("name", "precision", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA H100 NVL", "fp16", 835.5),
        ("NVIDIA H200", "bf16", 989.5),
        ("NVIDIA H200 NVL", "bf16", 835.5),
        ("NVIDIA GH200 480GB", "fp32", 67),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA L40S", "bf16", 362),
        ("NVIDIA L4", "bf16", 121),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla T4", "fp32", 8.1),
    ],
)
def test_the_drivers_name_finds_the_product(name: str, precision: str, teraflops: float) -> None:
    peak = peak_of(name, precision)
    assert peak is not None
    assert peak.flops == teraflops * 1e12
    assert "datasheet" in peak.source


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("NVIDIA Test 80GB", "bf16"),  # unknown
        ("", "fp32"),
        ("cpu", "fp32"),
        ("NVIDIA A100X", "bf16"),  # a name that only begins like a known one
        ("NVIDIA A10G", "bf16"),
        ("NVIDIA RTX A4000", "bf16"),
        ("Tesla V100-SXM2-16GB", "bf16"),  # known, but it has no units for that
    ],
)
def test_what_is_not_known_is_never_guessed(name: str, precision: str) -> None:
    assert peak_of(name, precision) is None


def test_mfu_of_an_example_by_hand() -> None:
    """GPT-2 124M at 1,024 tokens needs 8.6e8 FLOPs a token: 100 samples/s on one A100 are 28 % of its peak."""
    assert model_flops_utilization(100, 8.6e8 * 1024, 312e12) == pytest.approx(0.2823, abs=1e-4)
