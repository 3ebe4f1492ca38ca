"""Tricks that are played several at once are judged one by one: the trick that does harm is named, and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from tests.hostile.rounds import PlayedTrick, Rounds

NAMES = list("abcdefg")


@dataclass
class PretendedTricks:
    """Tricks that harm as `harms` says of those that are played together."""

    harms: Callable[[Sequence[str]], bool]
    stuck: str = ""
    played: list[list[str]] = field(default_factory=list)

    def play(self, names: Sequence[str]) -> dict[str, PlayedTrick]:
        self.played.append(list(names))
        return {name: PlayedTrick({"name": name}, "it has not ended" if name == self.stuck else "") for name in names}

    def find_harm(self) -> str:
        return "the agent has died" if self.harms(self.played[-1]) else ""


def troubles(tricks: PretendedTricks) -> dict[str, str]:
    rounds = Rounds(NAMES, 3, tricks.play, tricks.find_harm)
    found: dict[str, str] = {}
    for name in NAMES:
        try:
            assert rounds.result_of(name) == {"name": name}
        except AssertionError as error:
            found[name] = str(error).partition("\n")[0]
    return found


def test_harmless_tricks_are_played_once_and_together() -> None:
    tricks = PretendedTricks(lambda names: False)
    assert troubles(tricks) == {}
    assert tricks.played == [["a", "b", "c"], ["d", "e", "f"], ["g"]]


def test_only_the_harmful_trick_of_a_round_fails() -> None:
    tricks = PretendedTricks(lambda names: "e" in names)
    assert troubles(tricks) == {"e": "e: the agent has died"}
    assert tricks.played == [["a", "b", "c"], ["d", "e", "f"], ["d"], ["e"], ["f"], ["g"]]


def test_tricks_that_are_harmful_only_together_fail_together() -> None:
    tricks = PretendedTricks(lambda names: {"a", "c"} <= {*names})
    assert troubles(tricks) == dict.fromkeys("abc", "a, b, c at once: the agent has died")


def test_a_trick_that_does_not_end_fails_alone() -> None:
    assert troubles(PretendedTricks(lambda names: False, stuck="b")) == {"b": "it has not ended"}


def test_a_round_of_one_is_not_played_twice() -> None:
    tricks = PretendedTricks(lambda names: "g" in names)
    with pytest.raises(AssertionError, match="g: the agent has died"):
        Rounds(["g"], 3, tricks.play, tricks.find_harm).result_of("g")
    assert tricks.played == [["g"]]
