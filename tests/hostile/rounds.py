"""Plays many tricks, several at once, and finds out which of them did harm: a round that harms anybody is played again, each trick alone.

Pure: how tricks are played, and how harm is found, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Job = dict[str, Any]


@dataclass(frozen=True)
class PlayedTrick:
    """The job of a trick, as it was when it had ended. `trouble`: what is wrong with the trick or with what it did to others; empty: nothing."""

    job: Job
    trouble: str = ""


@dataclass
class Rounds:
    """`names` are played in their order, `at_once` of them together. `play` runs tricks side by side to their end; `find_harm` tells in words what
    they did to others, or nothing, and mends it, so that the next round finds all whole."""

    names: Sequence[str]
    at_once: int
    play: Callable[[Sequence[str]], Mapping[str, PlayedTrick]]
    find_harm: Callable[[], str]
    _played: dict[str, PlayedTrick] = field(default_factory=dict)

    def result_of(self, name: str) -> Job:
        """The job of a trick. Its round is played if it was not yet. Raises AssertionError for a trick that harms others, alone or, where none of its round
        does so alone, together with them."""
        if name not in self._played:
            first = self.names.index(name) // self.at_once * self.at_once
            self._play_round(self.names[first : first + self.at_once])
        played = self._played[name]
        assert not played.trouble, played.trouble
        return played.job

    def _play_round(self, names: Sequence[str]) -> None:
        harm = self._play_together(names)
        if not harm or len(names) == 1:
            return
        together = {name: self._played[name] for name in names}
        alone = [self._play_together([name]) for name in names]
        if not any(alone):
            self._played |= {name: PlayedTrick(each.job, f"{', '.join(names)} at once: {harm}") for name, each in together.items()}

    def _play_together(self, names: Sequence[str]) -> str:
        """Play tricks, and return the harm that they did to others."""
        self._played |= self.play(names)
        harm = self.find_harm()
        if harm and len(names) == 1:
            (name,) = names
            self._played[name] = PlayedTrick(self._played[name].job, f"{name}: {harm}")
        return harm
