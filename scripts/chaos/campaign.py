"""Both runs of a chaos campaign, on one stack, and the figures that come of them."""

from __future__ import annotations

from scripts.bench.figures import Figure, summarize
from scripts.chaos.run import Run, run_chaos, run_control
from scripts.chaos.schedule import last_step, possible_kinds, schedule
from scripts.chaos.verdict import Verdict
from scripts.faults import history
from scripts.faults.gang import Gang, running
from scripts.faults.job import RANKS, gpt_job
from scripts.faults.network import lacking
from scripts.faults.rig import Rig, networked_rig, rig
from scripts.steps import say

FAULTS = 60
SECONDS_BETWEEN = 30.0
SPARES = 1
WARM_STEPS = 30
LEAST_STEPS_BETWEEN = 20
START_TIMEOUT_S = 120.0


def chaos(seed: int, faults: int, every: int | None, seconds_between: float = SECONDS_BETWEEN) -> tuple[Run, Run]:
    """Run both jobs of one campaign, and return the figures."""
    reason = lacking()
    say(f"no links are cut: {reason}" if reason else "each node has a network namespace of its own")
    with rig(RANKS + SPARES) if reason else networked_rig(RANKS + SPARES) as ours:
        run = disturbed(ours, seed, faults, every, seconds_between, networked=reason is None)
        say(f"the same job left alone, to step {run.last_step}")
        with running(ours.client, ours.layout, gpt_job("control", spares=SPARES)) as gang:
            return run, run_control(gang, run.last_step)


def disturbed(ours: Rig, seed: int, faults: int, every: int | None, seconds_between: float, *, networked: bool) -> Run:
    with running(ours.client, ours.layout, gpt_job("chaos", spares=SPARES)) as gang:
        every = every or steps_in(gang, seconds_between)
        plan = schedule(seed, faults, every, RANKS, possible_kinds(networked=networked))
        say(f"seed {seed}, {faults} faults, one every {every} steps: to repeat this, --seed {seed} --faults {faults} --every {every}")
        return run_chaos(ours, gang, plan, last_step(plan, every))


def steps_in(gang: Gang, seconds: float) -> int:
    """Return how many steps fit into the time, by the speed of the job's first steps."""
    gang.observer.reach(0, WARM_STEPS, START_TIMEOUT_S)
    return max(LEAST_STEPS_BETWEEN, round(seconds / history.median_step(gang.history)))


def figures(run: Run, verdict: Verdict) -> list[Figure]:
    outages = [struck.outage for struck in run.struck if struck.outage is not None]
    counts = {"steps_lost": verdict.steps_lost, "hangs": verdict.hangs, "split_brains": verdict.split_brains}
    goodput = Figure("chaos_goodput", "ratio", verdict.goodput, verdict.goodput, verdict.faults, "of the undisturbed throughput; goal 0.98")
    return [
        goodput,
        summarize("chaos_outage_s", "s", outages, "all kinds of faults mixed"),
        *(Figure(f"chaos_{name}", "1", float(count), float(count), verdict.faults, "goal 0") for name, count in counts.items()),
    ]
