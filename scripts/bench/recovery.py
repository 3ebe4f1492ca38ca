"""What a fault costs: kills, stops, cut links, joins; medians and p95 over many faults, beside torchrun and torchft on the same rig.

Real coordinator, real agents with one slot each, the same small GPT on three ranks. A fault strikes the rank that has come to a step;
its cost runs from the blow to the next step that all survivors have committed, both by this machine's wall clock.

    python -m scripts.bench.recovery [--quick] [--kills N] [--only PART ...] [--json FILE]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.training.schema.fault_tolerance import LEAST_HANG_SECONDS
from scripts.bench.figures import Figure, report, summarize
from scripts.bench.peers.table import PEER_PARTS, peer_figures, side_by_side
from scripts.chaos import campaign
from scripts.chaos.verdict import judge
from scripts.faults.gang import running
from scripts.faults.job import RANKS, SAVED_EVERY, gpt_job, sharded_job
from scripts.faults.network import lacking
from scripts.faults.rig import Rig, end_in_order, networked_rig, rig
from scripts.faults.series import Findings, strike_repeatedly
from scripts.steps import say

FAULTS, QUICK_FAULTS = 12, 3
#: Half an hour of faults, and as long without any.
CHAOS, SEED = "chaos", 2026


@dataclass(frozen=True)
class Part:
    """Faults of one kind, on a stack of their own."""

    kind: str
    figure: str
    goal: str
    spares: int = 0
    networked: bool = False  # each node in a network namespace of its own
    silent: bool = False  # nothing breaks: the waiting ranks have to find out
    hang_seconds: float | None = None  # None: by measured step times
    sharded: bool = False  # it falls back to a checkpoint, in place, and is refilled in the slot of the dead

    def rig(self) -> AbstractContextManager[Rig]:
        agents = RANKS + self.spares
        return networked_rig(agents) if self.networked else rig(agents)

    def job(self) -> dict[str, Any]:
        return sharded_job("recovery") if self.sharded else gpt_job("recovery", spares=self.spares, hang_seconds=self.hang_seconds)


PARTS = {
    "ranks": Part("rank_killed", "rank_killed_s", "goal 0.35 s, p95 1 s"),
    "parts": Part(
        "rank_killed", "fallback_s", "of a model in parts, with a new process in the slot; without the steps done again", sharded=True
    ),
    "spares": Part("rank_killed", "spare_in_place_s", "goal 0.6 s", spares=1),
    "nodes": Part("node_killed", "node_killed_s", "goal 0.5 s, p95 1.5 s"),
    "namespaces": Part("namespace_killed", "namespace_killed_s", "a node with its network; goal 0.5 s, p95 1.5 s", networked=True),
    "stops": Part("rank_stopped", "rank_stopped_s", "limit", silent=True),
    "cuts": Part("link_cut", "link_cut_s", "limit", networked=True, silent=True),
    "impatient": Part("link_cut", "impatient_link_cut_s", "limit", networked=True, silent=True, hang_seconds=LEAST_HANG_SECONDS),
}

#: Nodes are killed and links are cut in two ways; one is enough to see that it works.
QUICK_PARTS = tuple(name for name in PARTS if name not in ("namespaces", "impatient"))


def measure(names: Sequence[str], faults: int, kills: int) -> list[Figure]:
    found = {name: findings for stack in stacks(names) for name, findings in strike_on(stack, faults, kills)}
    ours = [figure for name, each in found.items() for figure in outage_figures(PARTS[name], each)]
    theirs = [figure for name in names if name in PEER_PARTS for figure in peer_figures(name)]
    closed_up = [each for name, each in found.items() if not PARTS[name].sharded]
    return ours + figures_over_all(closed_up) + theirs + (chaos_figures() if CHAOS in names else [])


def stacks(names: Sequence[str]) -> list[list[str]]:
    """Parts that can share a stack, together."""
    wanted = [name for name in PARTS if name in names]
    kinds = {(PARTS[name].spares, PARTS[name].networked): None for name in wanted}
    return [[name for name in wanted if (PARTS[name].spares, PARTS[name].networked) == kind] for kind in kinds]


def strike_on(names: Sequence[str], faults: int, kills: int) -> Iterator[tuple[str, Findings]]:
    """A job for each part, one after the other."""
    with PARTS[names[0]].rig() as ours:
        for name in names:
            part, count = PARTS[name], kills if name == "ranks" else faults
            say(f"{part.figure}: {count} faults")
            with running(ours.client, ours.layout, part.job()) as gang:
                yield name, strike_repeatedly(ours, gang, part.kind, count)


def outage_figures(part: Part, found: Findings) -> list[Figure]:
    goal = part.goal
    if part.silent:
        limit = 3 * found.p99_step + 1
        worst = max(found.outages, default=0.0) / limit
        goal = f"under 3 x p99 step + 1 s, here {limit:.2f} s; the worst took {worst:.2f} of that"
    figures = [summarize(part.figure, "s", found.outages, goal)] if found.outages else []
    return figures + ([steps_again(found)] if part.sharded else [])


def steps_again(found: Findings) -> Figure:
    """Return the mean number of steps repeated after a fault; half a checkpoint interval is expected if faults come at any step."""
    share = found.steps_lost / max(1, found.faults)
    return Figure("fallback_steps_again", "steps", share, share, found.faults, f"mean; a checkpoint every {SAVED_EVERY} steps")


def figures_over_all(found: Sequence[Findings]) -> list[Figure]:
    if not found:
        return []
    faults = sum(each.faults for each in found)
    counts = {
        "steps_lost": ("steps", sum(each.steps_lost for each in found)),
        "hangs": ("1", sum(each.hangs for each in found)),
        "split_brains": ("1", sum(each.split_brains for each in found)),
    }
    joins = [outage for each in found for outage in each.joins]
    joined = [summarize("join_outage_s", "s", joins, "of those at work; goal 0.3 s")] if joins else []
    return joined + [Figure(name, unit, float(n), float(n), faults, "over all faults; goal 0") for name, (unit, n) in counts.items()]


def chaos_figures() -> list[Figure]:
    run, control = campaign.chaos(SEED, campaign.FAULTS, None)
    return campaign.figures(run, judge(run, control))


def possible(names: Sequence[str]) -> list[str]:
    """Return the parts that this machine can run, and print what is left out and why."""
    reason = lacking()
    left_out = [name for name in names if reason and name in PARTS and PARTS[name].networked]
    if left_out:
        say(f"{', '.join(left_out)} left out: {reason}")
    return [name for name in names if name not in left_out]


def main() -> None:
    everything = [*PARTS, *PEER_PARTS, CHAOS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_FAULTS} faults each, no peers, no chaos")
    parser.add_argument("--kills", type=int, metavar="N", help="so many kills of a rank instead")
    parser.add_argument("--only", nargs="+", choices=everything, metavar="PART", help=f"of {', '.join(everything)}")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    end_in_order()
    faults = QUICK_FAULTS if arguments.quick else FAULTS
    names = arguments.only or (list(QUICK_PARTS) if arguments.quick else everything)
    figures = measure(possible(names), faults, arguments.kills or faults)
    report(figures, arguments.json)
    print(side_by_side(figures))


if __name__ == "__main__":
    main()
