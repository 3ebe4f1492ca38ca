"""The failure model: rates, draws, and the faults that a spec asks for."""

from __future__ import annotations

import itertools
import math
import random

from paceline.cluster.simulation.faults import FAULTS, FaultRates, WishedFault, not_understood, wished


def test_faults_come_at_their_rates() -> None:
    rates = FaultRates(crash=3.0, silence=1.0)
    drawn = list(itertools.islice(rates.arrivals(random.Random(1)), 4_000))
    assert math.isclose(sum(hours for hours, _ in drawn), 1_000, rel_tol=0.1)
    assert math.isclose(sum(kind == "crash" for _, kind in drawn), 3_000, rel_tol=0.05)
    assert {kind for _, kind in drawn} == {"crash", "silence"}


def test_the_same_seed_brings_the_same_faults() -> None:
    rates = FaultRates.published(512, 100)
    one, again = (list(itertools.islice(rates.arrivals(random.Random(7)), 20)) for _ in range(2))
    assert one == again


def test_without_rates_nothing_ever_comes() -> None:
    assert list(FaultRates().arrivals(random.Random(1))) == []


def test_the_published_rate_is_one_fault_in_four_days_on_512_cards() -> None:
    rates = FaultRates.published(512)
    assert math.isclose(1 / (rates.crash + rates.hang + rates.node + rates.silence), 99, rel_tol=0.01)


def test_a_spec_asks_for_faults_by_step_and_rank() -> None:
    variables = {FAULTS: "hang@90:3, exception@40,nan@x,flood@3"}
    assert wished(variables) == (WishedFault("exception", 40, 0), WishedFault("hang", 90, 3))
    assert not_understood(variables) == ["nan@x", "flood@3"]
    assert wished({}) == ()
