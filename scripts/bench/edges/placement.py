"""One pass of the placement over 10,000 nodes of 8 slots with 5,000 queued gangs, called directly.

Six clusters: all slots free, none, or a random part of each node's; gangs of whole nodes (1 to 16 of them), single ranks of 1, 2
or 4 slots, or 1 to 40 slots anywhere in one of four zones. A sample is the CPU time of one pass, so that what else the machine does matters little.

    python -m scripts.bench.edges.placement [--json FILE]
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta

from paceline.cluster.policy.placement import NodeView, Request, Requirements, place
from scripts.bench.figures import Figure, run, summarize

NODES, SLOTS, JOBS = 10_000, 8, 5_000
REPETITIONS = 5
ZONES = [frozenset({f"zone={zone}"}) for zone in "abcd"]
CASES = (("all", "gangs"), ("all", "small"), ("none", "gangs"), ("mixed", "gangs"), ("mixed", "small"), ("mixed", "slots"))
REFERENCE = "goal 200 ms; 25,000 to 42,000 without indexes"


def nodes_with(free: str, dice: random.Random) -> list[NodeView]:
    counts = {"all": (SLOTS,), "none": (0,), "mixed": tuple(range(SLOTS + 1))}[free]
    return [
        NodeView(f"n{i:05d}", f"node-{i:05d}", "cpu", SLOTS, tuple(range(dice.choice(counts))), True, ZONES[i % 4]) for i in range(NODES)
    ]


def queue_of(kind: str, dice: random.Random) -> list[Request]:
    start = datetime(2026, 11, 23, tzinfo=UTC)
    if kind == "slots":
        return [
            Request(f"j{i:05d}", dice.randrange(1, 41), 1, dice.randrange(100), start, requirements=Requirements(labels=dice.choice(ZONES)))
            for i in range(JOBS)
        ]
    shapes = [(dice.choice([1, 2, 4, 8, 16]), SLOTS) if kind == "gangs" else (1, dice.choice([1, 2, 4])) for _ in range(JOBS)]
    return [
        Request(f"j{i:05d}", nodes, slots, dice.randrange(100), start + timedelta(seconds=i)) for i, (nodes, slots) in enumerate(shapes)
    ]


def pass_ms(free: str, kind: str) -> float:
    dice = random.Random(1)
    nodes, queue = nodes_with(free, dice), queue_of(kind, dice)
    began = time.process_time()
    place(queue, nodes)
    return (time.process_time() - began) * 1000


def measure() -> list[Figure]:
    cases = {f"placement_pass_ms.{free}.{kind}": [pass_ms(free, kind) for _ in range(REPETITIONS)] for free, kind in CASES}
    slowest = max(cases.values(), key=lambda samples: sorted(samples)[REPETITIONS // 2])
    every = [summarize(name, "ms CPU", samples, REFERENCE) for name, samples in cases.items()]
    return [summarize("placement_pass_ms", "ms CPU", slowest, f"the slowest of {len(CASES)} cases; {REFERENCE}"), *every]


if __name__ == "__main__":
    run(measure, __doc__)
