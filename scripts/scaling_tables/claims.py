"""Scaling that other frameworks' READMEs print without naming devices, links or models in full, and what would have to be true for it. Pure.

No hardware is stated there, so nothing can be predicted for it; predicted are the same numbers of devices on machines of the catalogue. Then the question is turned round:
which share of a peak, and which network between the machines, would give what is printed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paceline.parallelism.model_shape import Precision
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.cost.predict import Platform
from paceline.parallelism.planning.cost.published import DGX_1, GRAND_TETON, PublishedSource, PublishedStep
from paceline.parallelism.planning.machines import Link
from paceline.parallelism.planning.step_time import BACKWARD_OF_FORWARD, step_time
from scripts.scaling_tables.predictions import compare, machines_of, setup_of
from scripts.scaling_tables.shapes import shape_of

#: Samples of a device in a step; the READMEs' own example commands use 32, 64 and 128.
IMAGES, SEQUENCES = 64, 2
HALVINGS = 60
LOWEST, HIGHEST = 1e6, 1e13  # bytes a second of a machine's network


@dataclass(frozen=True)
class Claim:
    """A printed number: the share of ideal speed on `devices` devices, or the rate of one."""

    where: str
    what: str
    model: str
    devices: int
    efficiency: float | None = None  # over one device, or over `base` of them
    rate: float | None = None  # of one device
    sharded: bool = False
    base: int = 1


VISION, LANGUAGE = "ResNet-50", "Llama 3.1 8B"
CLAIMS = (
    Claim("first edition", "450 images/s on one device", VISION, 1, rate=450),
    Claim("first edition", "72 % with FSDP on 128", VISION, 128, efficiency=0.72, sharded=True),
    Claim("second edition", "1,150 images/s on one device", VISION, 1, rate=1150),
    Claim("second edition, a target", "over 85 % on 16", VISION, 16, efficiency=0.85),
    Claim("second edition", "63 % on 256", VISION, 256, efficiency=0.63),
    Claim("second edition, language models", "95 % on 8, 86 % on 64", LANGUAGE, 64, efficiency=0.86 / 0.95, sharded=True, base=8),
)


@dataclass(frozen=True)
class Setting:
    """Machines of the catalogue on which a claim is tried."""

    platform: Platform
    precision: Precision


SETTINGS = (Setting(DGX_1, "fp16"), Setting(GRAND_TETON, "bf16"))


def row_of(claim: Claim, setting: Setting, devices: int) -> PublishedStep:
    """Return the claim's configuration on `devices` devices as a row without a published rate."""
    source = PublishedSource(setting.platform.words, "", "tokens/s" if claim.model == LANGUAGE else "images/s", setting.platform, "")
    language = claim.model == LANGUAGE
    return PublishedStep(
        source,
        claim.what,
        claim.model,
        setting.precision,
        Degrees(shard=devices) if claim.sharded else Degrees(replicate=devices),
        samples=SEQUENCES if language else IMAGES,
        context=8192 if language else 0,
        rate=1.0,
        checkpointing="selective" if language else "none",
        optimizer="adamw" if language else "sgd",
    )


def predicted_rate(claim: Claim, setting: Setting, devices: int) -> float:
    """Return the predicted rate of one of `devices` devices."""
    return compare(row_of(claim, setting, devices)).rate


def predicted_efficiency(claim: Claim, setting: Setting) -> float:
    return predicted_rate(claim, setting, claim.devices) / predicted_rate(claim, setting, claim.base)


def needed_share_of_peak(claim: Claim, setting: Setting) -> float:
    """Return the share of the device's peak that a claimed rate of one device would take, arithmetic of the model alone."""
    row, peak = row_of(claim, setting, 1), setting.platform.device.peak(setting.precision)
    if claim.rate is None or peak is None:
        raise ValueError(f"{claim.what} is no rate of {setting.platform.device.name} in {setting.precision}")
    return claim.rate * (1 + BACKWARD_OF_FORWARD) * shape_of(row).flops / peak.flops


def needed_network(claim: Claim, setting: Setting, *, overlaps: bool) -> float | None:
    """Return the bytes per second of a machine's network at which the claimed efficiency would be the predicted one; None: at no bandwidth."""
    if efficiency_over(claim, setting, HIGHEST, overlaps=overlaps) < (claim.efficiency or 1.0):
        return None
    low, high = LOWEST, HIGHEST
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        slower = efficiency_over(claim, setting, middle, overlaps=overlaps) < (claim.efficiency or 1.0)
        low, high = (middle, high) if slower else (low, middle)
    return high


def efficiency_over(claim: Claim, setting: Setting, network: float, *, overlaps: bool) -> float:
    """Return the predicted efficiency of a claim's configuration with a network of so many bytes per second of a machine."""

    def seconds(devices: int) -> float:
        row = row_of(claim, setting, devices)
        machines = machines_of(row, setting.platform.device.rate(row.precision))
        between = Link(network, machines.between.latency_seconds)
        return step_time(shape_of(row), setup_of(row), replace(machines, between=between, overlaps=overlaps)).total

    return seconds(claim.base) / seconds(claim.devices)
