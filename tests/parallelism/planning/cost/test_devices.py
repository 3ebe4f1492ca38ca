"""The catalogue of devices: names as drivers give them, and no guesses."""

from __future__ import annotations

import pytest

from paceline.parallelism.planning.cost.devices import DEVICES, SHARE_OF_PEAK, CatalogueDevice, device_named
from paceline.parallelism.planning.cost.errors import UnknownDeviceError
from paceline.parallelism.planning.cost.links import link_named


@pytest.mark.parametrize(
    ("driver", "terabytes", "gigabytes"),
    [
        ("NVIDIA H100 80GB HBM3", 3.35, 80),
        ("NVIDIA H100 PCIe", 2.0, 80),
        ("NVIDIA H100 NVL", 3.9, 94),
        ("NVIDIA H200", 4.8, 141),
        ("NVIDIA A100-SXM4-80GB", 2.039, 80),
        ("Tesla V100-SXM2-16GB", 0.9, 16),
    ],
)
def test_the_drivers_name_finds_the_product(driver: str, terabytes: float, gigabytes: int) -> None:
    device = device_named(driver)
    assert (device.memory_bytes_per_second, device.memory_bytes) == (pytest.approx(terabytes * 1e12), gigabytes * 10**9)


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "NVIDIA GH200 480GB", "cpu", ""])
def test_an_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(UnknownDeviceError, match="is not in the catalogue, and its speed is not guessed; add its data sheet's numbers"):
        device_named(name)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_every_device_has_a_source_a_link_and_a_peak(device: CatalogueDevice) -> None:
    assert device_named(device.name) == device
    assert link_named(device.link).bytes_per_second > 0
    assert "datasheet" in device.source
    peak = device.peak("fp32")
    assert peak is not None
    assert device.rate("fp32") == pytest.approx(SHARE_OF_PEAK["fp32"] * peak.flops)


def test_a_precision_that_a_device_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownDeviceError, match="Tesla T4 in bf16"):
        device_named("Tesla T4").rate("bf16")
