"""Published scaling tables beside predictions: the models are the published ones, and the page is what the code says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.cost.published import DLPERF_BERT, PublishedStep, published
from scripts.scaling_tables.__main__ import FILE
from scripts.scaling_tables.claims import (
    CLAIMS,
    SETTINGS,
    Claim,
    efficiency_over,
    needed_network,
    needed_share_of_peak,
    predicted_efficiency,
)
from scripts.scaling_tables.pages import median_error, page
from scripts.scaling_tables.predictions import compare, compare_all
from scripts.scaling_tables.shapes import shape_of

ROWS = {(row.source.name, row.row, row.degrees.world_size): row for row in published()}


def row_of(model: str) -> PublishedStep:
    return next(row for row in ROWS.values() if row.model == model)


@pytest.mark.parametrize(
    ("model", "billions"),
    [("Llama 3.1 8B", 8.03), ("Llama 3.1 70B", 70.55), ("Llama 3.1 405B", 405.85), ("BERT-base", 0.1085), ("ResNet-50", 0.02556)],
)
def test_models_have_the_published_numbers_of_parameters(model: str, billions: float) -> None:
    """BERT's without its positions, its pooler and what follows that: 110 M with them."""
    assert shape_of(row_of(model)).parameters / 1e9 == pytest.approx(billions, rel=0.003)


def test_resnet50_multiplies_and_adds_as_often_as_published() -> None:
    """4.1 G multiply-adds of an image of 224 x 224 pixels (torchvision)."""
    assert shape_of(row_of("ResNet-50")).flops / 2 == pytest.approx(4.1e9, rel=0.01)


def test_llamas_flops_are_those_that_the_source_counts() -> None:
    """torchtitan states 33 % MFU for 5,762 tokens/s of 989 TFLOP/s."""
    row = row_of("Llama 3.1 8B")
    assert row.rate * 3 * shape_of(row).flops / row.context / 989e12 == pytest.approx(0.33, abs=0.01)


def test_a_message_that_nothing_hides_makes_two_machines_slower_than_one() -> None:
    eight, sixteen = (compare(ROWS[DLPERF_BERT.name, "FP32, 32", ranks]) for ranks in (8, 16))
    assert sixteen.rate / eight.rate == pytest.approx(sixteen.row.rate / eight.row.rate, rel=0.03)
    hidden = compare(replace(sixteen.row, overlaps=True))
    assert hidden.rate > 0.97 * eight.rate


def test_half_of_the_published_rows_are_told_within_a_tenth() -> None:
    assert median_error(each for each in compare_all(published()) if not each.row.calibrates) < 0.15


@pytest.mark.parametrize("claim", [each for each in CLAIMS if each.efficiency and not each.sharded], ids=lambda claim: claim.what)
def test_the_network_that_would_be_needed_gives_the_claimed_efficiency(claim: Claim) -> None:
    for setting in SETTINGS:
        fast, slow = (needed_network(claim, setting, overlaps=overlaps) for overlaps in (True, False))
        assert fast is not None
        assert slow is not None
        assert fast < slow  # what does not overlap needs the faster network
        assert efficiency_over(claim, setting, fast, overlaps=True) == pytest.approx(claim.efficiency, rel=1e-3)
        assert predicted_efficiency(claim, setting) > (claim.efficiency or 0)


def test_the_share_of_a_peak_that_a_claimed_rate_takes() -> None:
    """1,150 images/s of 3 x 2 x 4.1 G operations, of 125 TFLOP/s."""
    claim = next(each for each in CLAIMS if each.rate == 1150)
    assert needed_share_of_peak(claim, SETTINGS[0]) == pytest.approx(1150 * 6 * 4.1e9 / 125e12, rel=0.01)


def test_a_sharded_plan_needs_less_memory_on_each_device() -> None:
    row = row_of("Llama 3.1 8B")
    assert compare(replace(row, degrees=Degrees(shard=128))).memory_gib < compare(row).memory_gib


def test_the_page_is_what_the_code_says() -> None:
    assert FILE.read_text() == page(compare_all(published())), "write it with python -m scripts.scaling_tables"
