"""Whether `communication: auto` finds the best way to sum gradients: beside each way by itself, on links of several speeds.

A figure is the ratio of step times, the fastest fixed way over what auto has decided on: 1 is as fast. auto takes what leaves something out only where
that saves a fifth of a step, so that it may be slower on purpose.
"""

from __future__ import annotations

import statistics

from paceline.training.link import RankPlace
from scripts.bench.communication.gpt_steps import Run, Section, steps
from scripts.bench.communication.hosts import RATES, run_on_hosts, shaped_hosts
from scripts.bench.figures import Figure, run_shortened, summarize

GLOBAL_BATCH = 4
PLACEMENT = (0, 0, 1, 1)
FIXED: dict[str, Section] = {
    "backend": {},
    "hierarchical": {"algorithm": "hierarchical"},
    "bf16": {"compression": "bf16"},
    "hierarchical bf16": {"algorithm": "hierarchical", "compression": "bf16"},
    "top_k": {"compression": "top_k", "dense_steps": 0},
    "hierarchical top_k": {"algorithm": "hierarchical", "compression": "top_k", "dense_steps": 0},
    "hierarchical power_sgd": {"algorithm": "hierarchical", "compression": "power_sgd", "dense_steps": 0},
}
AUTO: Section = {"algorithm": "auto", "compression": "auto", "lossy": True, "dense_steps": 0}
STEPS = 5


def measure(quick: bool) -> list[Figure]:
    figures = []
    for rate in RATES[-1:] if quick else RATES:
        with shaped_hosts(2, rate) as network:
            found = {
                name: statistics.median(run_on_hosts(steps, PLACEMENT, network, section, STEPS, GLOBAL_BATCH, timeout=400.0)[0].seconds)
                for name, section in FIXED.items()
            }
            auto = run_on_hosts(_until_decided, PLACEMENT, network, timeout=600.0)[0]
        best = min(found, key=lambda name: found[name])
        told = ", ".join(f"{name} {seconds:.3g}" for name, seconds in found.items())
        reference = f"the fastest was {best}; seconds of a step: {told}; auto: {auto.decided}; {auto.links}"
        figures.append(summarize(f"auto_vs_best_{rate or 'unshaped'}", "ratio", [found[best] / each for each in auto.seconds], reference))
    return figures


def _until_decided(world: RankPlace) -> Run:
    return steps(world, AUTO, STEPS, GLOBAL_BATCH, after_verdict=True)


if __name__ == "__main__":
    run_shortened(measure, __doc__)
