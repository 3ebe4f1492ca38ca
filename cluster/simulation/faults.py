"""The failure model: when something breaks in a simulated cluster, and what. Seeded, and pure but for its own draws.

Faults of each kind come as a Poisson process at a rate over the whole cluster, per hour of the modelled time, and hit a rank or a node
drawn evenly. Llama 3 405B saw 419 unexpected interruptions in 54 days on 16,384 GPUs (Grattafiori et al. 2024, section 3.3.4): one in
50,700 GPU-hours, or 0.01 an hour on 512 cards, most of them of single cards. A job may also ask for a fault of its own, by the variable
FAULTS in its spec's environment, such as `exception@40,hang@90:3` (what, in which step, and of which rank).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

#: Variable of a spec's environment that names faults.
FAULTS = "SIMULATED_FAULTS"
GPU_HOURS_PER_FAULT = 50_700.0
#: Shares of all faults: single ranks that crash, ranks that hang, nodes, nodes that fall silent for a while.
SHARES = {"crash": 0.7, "hang": 0.1, "node": 0.1, "silence": 0.1}

RankFault = Literal["crash", "exception", "out_of_memory", "hang", "nan"]
ClusterFault = Literal["crash", "hang", "node", "silence"]
_WISH = re.compile(r"(?P<kind>\w+)@(?P<step>\d+)(?::(?P<rank>\d+))?")


@dataclass(frozen=True)
class WishedFault:
    """A fault that a job's spec asks for. It comes once, in the step after `step` is committed."""

    kind: RankFault
    step: int
    rank: int


@dataclass(frozen=True)
class FaultRates:
    """Faults per modelled hour over the whole cluster."""

    crash: float = 0.0
    hang: float = 0.0
    node: float = 0.0
    silence: float = 0.0

    @classmethod
    def published(cls, slots: int, factor: float = 1.0) -> FaultRates:
        """`factor` times as many as the published rate on so many cards."""
        total = factor * slots / GPU_HOURS_PER_FAULT
        return cls(**{kind: share * total for kind, share in SHARES.items()})

    def arrivals(self, drawn: random.Random) -> Iterator[tuple[float, ClusterFault]]:
        """The faults to come, without end: (hours since the one before, its kind). Empty where every rate is 0."""
        rates = {kind: getattr(self, kind) for kind in get_args(ClusterFault)}
        total = sum(rates.values())
        while total > 0:
            yield drawn.expovariate(total), drawn.choices(list(rates), list(rates.values()))[0]


def wished(variables: Mapping[str, str]) -> tuple[WishedFault, ...]:
    """The faults that a spec's environment asks for, by step. What is not understood is left out: it is said by `not_understood`."""
    return tuple(sorted((wish for word in _words(variables) if (wish := _parsed(word))), key=lambda wish: wish.step))


def not_understood(variables: Mapping[str, str]) -> list[str]:
    """The words of FAULTS that name no fault."""
    return [word for word in _words(variables) if _parsed(word) is None]


def _words(variables: Mapping[str, str]) -> list[str]:
    return [word.strip() for word in variables.get(FAULTS, "").split(",") if word.strip()]


def _parsed(word: str) -> WishedFault | None:
    found = _WISH.fullmatch(word)
    kind: RankFault | None = next((each for each in get_args(RankFault) if found and each == found["kind"]), None)
    return WishedFault(kind, int(found["step"]), int(found["rank"] or 0)) if found and kind else None
