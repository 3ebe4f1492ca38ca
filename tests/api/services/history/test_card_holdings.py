"""Which card a rank held, and when."""

from __future__ import annotations

from dataclasses import replace

from paceline.api.services.history.card_holdings import CardHolding, joined
from paceline.api.services.nodes.node_metrics import TimeSpan

FIRST = CardHolding(0, 1, "a", "node-a", 0, 0, TimeSpan(0.0, 10.0), now=False)


def test_a_rank_that_keeps_its_slot_holds_it_through_generations() -> None:
    second = replace(FIRST, generation=2, span=TimeSpan(10.0, 30.0), now=True)
    assert joined([FIRST, second]) == [replace(FIRST, span=TimeSpan(0.0, 30.0), now=True)]


def test_a_rank_that_moves_away_and_back_has_three_holdings() -> None:
    away = replace(FIRST, generation=2, node_id="b", span=TimeSpan(10.0, 20.0))
    back = replace(FIRST, generation=3, span=TimeSpan(20.0, 30.0))
    assert joined([FIRST, away, back]) == [FIRST, away, back]
    assert FIRST.seconds == 10.0


def test_a_pause_is_not_held_though_the_rank_comes_back_to_its_slot() -> None:
    after = replace(FIRST, generation=2, span=TimeSpan(100.0, 110.0), now=True)
    assert joined([FIRST, after]) == [FIRST, after]


def test_a_slot_that_is_another_card_since_its_agent_started_again_is_another_holding() -> None:
    other = replace(FIRST, generation=2, card=5, span=TimeSpan(10.0, 30.0), now=True)
    assert joined([FIRST, other]) == [FIRST, other]
