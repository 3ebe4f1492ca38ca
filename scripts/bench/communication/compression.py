"""What compressed gradients make of a step on slow links: the same GPT on two hosts, dense and compressed in turns.

A figure is the ratio of step times, dense (gloo's ring through DDP's buckets) over compressed: 1 is as fast, more is faster.
"""

from __future__ import annotations

import statistics

from scripts.bench.communication.gpt_steps import Section, steps
from scripts.bench.communication.hosts import run_on_hosts, shaped_hosts
from scripts.bench.figures import Figure, run_shortened, summarize

GLOBAL_BATCH = 4
KINDS: dict[str, Section] = {
    "dense": {},
    "bf16": {"compression": "bf16"},
    "top1": {"compression": "top_k", "ratio": 0.01, "dense_steps": 0},
    "top1_exact": {"compression": "top_k", "ratio": 0.01, "threshold": "exact", "dense_steps": 0},
    "power_sgd2": {"compression": "power_sgd", "rank": 2, "dense_steps": 0},
}
RATES = ("100mbit", "1gbit")
STEPS, ROUNDS = 4, 2


def measure(quick: bool) -> list[Figure]:
    figures: list[Figure] = []
    for rate in RATES[-1:] if quick else RATES:
        seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
        with shaped_hosts(2, rate) as network:
            for number in range(1 if quick else ROUNDS):
                for kind in (*KINDS,) if number % 2 == 0 else (*reversed(KINDS),):
                    seconds[kind] += run_on_hosts(steps, (0, 1), network, KINDS[kind], STEPS, GLOBAL_BATCH, timeout=400.0)[0].seconds
        dense = statistics.median(seconds["dense"])
        figures += [
            summarize(
                f"{kind}_{rate}",
                "ratio",
                [dense / each for each in found],
                f"speed beside dense, {dense:.3g} s a step, 2 hosts of one rank",
            )
            for kind, found in seconds.items()
        ]
    return figures


if __name__ == "__main__":
    run_shortened(measure, __doc__)
