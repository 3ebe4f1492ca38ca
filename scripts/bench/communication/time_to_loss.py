"""How much sooner a compressed GPT reaches the loss that a dense one ends with, on two hosts with 100 Mbit/s between them.

Losses by step do not depend on the link: they are of runs over an unshaped one. Seconds of a step are of the shaped one. A figure is the ratio of times
to the loss, dense over compressed: more is better. A compressed run may take up to LONGER times the dense one's steps; where that is not enough, the
loss is the one that it ends with. Beside it: by how much losses differ at equal steps, in the mean over windows of steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from scripts.bench.communication.gpt_steps import WINDOW, Run, Section, steps
from scripts.bench.communication.hosts import run_on_hosts, shaped_hosts
from scripts.bench.figures import Figure, run_shortened, summarize
from scripts.faults.network import Network

RATE = "100mbit"
PLACEMENT = (0, 1)
GLOBAL_BATCH = 8
STEPS, QUICK_STEPS, TIMED_STEPS, LONGER = 400, 100, 4, 6
#: The steps in which everything is still sent whole, and as many again in which the residuals fill.
WARM_UP = 40
KINDS: dict[str, Section] = {
    "bf16": {"compression": "bf16"},
    "top1": {"compression": "top_k", "ratio": 0.01, "dense_steps": 20},
    "power_sgd4": {"compression": "power_sgd", "rank": 4, "dense_steps": 20},
}


def smoothed(losses: Sequence[float]) -> list[float]:
    """Return the mean over the last WINDOW losses, from the first whole window on."""
    return [statistics.fmean(losses[end - WINDOW : end]) for end in range(WINDOW, len(losses) + 1)]


def steps_to(losses: Sequence[float], goal: float) -> int | None:
    """Return the number of steps after which the smoothed loss is at or below `goal`; None: it never is."""
    return next((WINDOW + place for place, loss in enumerate(smoothed(losses)) if loss <= goal), None)


def measure(quick: bool) -> list[Figure]:
    count = QUICK_STEPS if quick else STEPS
    kinds: dict[str, Section] = {"dense": {}, **KINDS}
    with shaped_hosts(2, None) as network:
        dense = run_on_hosts(steps, PLACEMENT, network, {}, count, GLOBAL_BATCH, timeout=900.0)[0].losses
        losses = {kind: _compressed(network, asked, count, goal=smoothed(dense)[-1]) for kind, asked in KINDS.items()}
    with shaped_hosts(2, RATE) as network:
        timed = {
            kind: statistics.median(
                run_on_hosts(steps, PLACEMENT, network, _from_the_first_step(asked), TIMED_STEPS, GLOBAL_BATCH, timeout=400.0)[0].seconds
            )
            for kind, asked in kinds.items()
        }
    return [figure for kind in KINDS for figure in _figures(kind, dense, losses[kind], timed)]


def _compressed(network: Network, asked: Section, count: int, goal: float) -> list[float]:
    """Return the losses of `count` steps, and of as many more as are needed for `goal`."""
    until = partial(steps, goal=goal)
    found: Run = run_on_hosts(until, PLACEMENT, network, asked, LONGER * count, GLOBAL_BATCH, timeout=3600.0)[0]
    if len(found.losses) < count:
        found = run_on_hosts(steps, PLACEMENT, network, asked, count, GLOBAL_BATCH, timeout=900.0)[0]
    return found.losses


def _figures(kind: str, dense: Sequence[float], losses: Sequence[float], seconds: Mapping[str, float]) -> list[Figure]:
    own, others = smoothed(losses), smoothed(dense)
    apart = [compressed / whole - 1 for whole, compressed in zip(others[WARM_UP:], own[WARM_UP:], strict=False)]
    goal = max(others[-1], min(own))
    needed, of_dense = (steps_to(each, goal) or len(each) for each in (losses, dense))
    told = f"{goal:.3f}: dense in {of_dense} steps of {seconds['dense']:.3g} s, {kind} in {needed} of {seconds[kind]:.3g} s"
    sooner = of_dense * seconds["dense"] / (needed * seconds[kind])
    return [
        summarize(f"{kind}_loss_apart", "ratio", apart, f"loss above the dense one's at equal steps, from step {WINDOW + WARM_UP} on"),
        summarize(f"{kind}_time_to_loss_{RATE}", "ratio", [sooner], told),
    ]


def _from_the_first_step(asked: Section) -> Section:
    """Return the section without dense first steps."""
    return {**asked, "dense_steps": 0} if isinstance(asked, dict) and "dense_steps" in asked else asked


if __name__ == "__main__":
    run_shortened(measure, __doc__)
