"""How much sooner a compressed GPT reaches a loss than a dense one, on two hosts with 100 Mbit/s between them: the lowest that both reach.

Losses by step do not depend on the link: they are of runs over an unshaped one. Seconds of a step are of the shaped one. A figure is the ratio of times
to the loss, dense over compressed: more is better. Beside it: by how much losses differ at equal steps, in the mean over windows of steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scripts.bench.communication.gpt_steps import Section, steps
from scripts.bench.communication.hosts import run_on_hosts, shaped_hosts
from scripts.bench.figures import Figure, run_shortened, summarize

RATE = "100mbit"
PLACEMENT = (0, 1)
GLOBAL_BATCH = 8
STEPS, QUICK_STEPS, TIMED_STEPS, WINDOW = 400, 100, 4, 20
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
        losses = {
            kind: run_on_hosts(steps, PLACEMENT, network, asked, count, GLOBAL_BATCH, timeout=900.0)[0].losses
            for kind, asked in kinds.items()
        }
    with shaped_hosts(2, RATE) as network:
        timed = {
            kind: statistics.median(
                run_on_hosts(steps, PLACEMENT, network, _from_the_first_step(asked), TIMED_STEPS, GLOBAL_BATCH, timeout=400.0)[0].seconds
            )
            for kind, asked in kinds.items()
        }
    figures = []
    dense = smoothed(losses["dense"])
    for kind in KINDS:
        goal = max(dense[-1], smoothed(losses[kind])[-1])
        apart = [other / own - 1 for own, other in zip(dense[WARM_UP:], smoothed(losses[kind])[WARM_UP:], strict=True)]
        figures.append(
            summarize(f"{kind}_loss_apart", "ratio", apart, f"loss above the dense one's at equal steps, from step {WINDOW + WARM_UP} on")
        )
        needed, of_dense = (steps_to(losses[each], goal) or count for each in (kind, "dense"))
        told = f"{goal:.3f}: dense in {of_dense} steps of {timed['dense']:.3g} s, {kind} in {needed} of {timed[kind]:.3g} s"
        figures.append(summarize(f"{kind}_time_to_loss_{RATE}", "ratio", [of_dense * timed["dense"] / (needed * timed[kind])], told))
    return figures


def _from_the_first_step(asked: Section) -> Section:
    """Return the section without dense first steps."""
    return {**asked, "dense_steps": 0} if isinstance(asked, dict) and "dense_steps" in asked else asked


if __name__ == "__main__":
    run_shortened(measure, __doc__)
