"""The catalogue of links."""

from __future__ import annotations

import pytest

from paceline.parallelism.planning.cost.errors import UnknownLinkError
from paceline.parallelism.planning.cost.links import LINKS, link_named


def test_adapters_side_by_side_add_up() -> None:
    one, eight = (link_named("400 Gbit/s RDMA").link(adapters) for adapters in (1, 8))
    assert eight.bytes_per_second == 8 * one.bytes_per_second == pytest.approx(375e9)
    assert eight.latency_seconds == one.latency_seconds


def test_an_unknown_link_is_refused() -> None:
    with pytest.raises(UnknownLinkError, match="link 'carrier pigeon' is not in the catalogue, and its speed is not guessed"):
        link_named("carrier pigeon")


def test_every_link_has_a_source_and_a_name_of_its_own() -> None:
    assert len({link.name for link in LINKS}) == len(LINKS)
    assert all(link.source for link in LINKS)
