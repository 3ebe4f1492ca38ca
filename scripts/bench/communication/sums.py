"""Sums over Paceline's own rings, and within and between machines, beside gloo's flat ring: on hosts of their own, at several speeds of their links.

Each figure is gloo's time over ours, for the same vector, in turns: 1 is as fast, more is faster. gloo's ring is measured in good order (the ranks of
one host side by side) and dealt round-robin over the hosts, as launchers that number ranks by node do; ours goes machine by machine either way.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.distributed.reduction import GradientBucket, GradientPiece
from paceline.training.link import RankPlace
from scripts.bench.communication.hosts import RATES, run_on_hosts, shaped_hosts
from scripts.bench.figures import Figure, machine, report, summarize


class Contest(NamedTuple):
    """Ranks on hosts, an algorithm, and the fastest that it can be by the bytes that cross the slowest link."""

    name: str
    placement: Sequence[int]
    algorithm: Algorithm
    bound: float | None


CONTESTS = (
    Contest("ring_vs_gloo 2x1", (0, 1), "ring", None),
    Contest("ring_vs_gloo 4x1", (0, 1, 2, 3), "ring", None),
    Contest("ring_vs_gloo 2x2", (0, 0, 1, 1), "ring", None),
    Contest("ring_vs_round_robin 2x2", (0, 1, 0, 1), "ring", 2.0),
    Contest("hierarchical_vs_good_ring 2x2", (0, 0, 1, 1), "hierarchical", 1.5),
    Contest("hierarchical_vs_good_ring 2x4", (0,) * 4 + (1,) * 4, "hierarchical", 1.75),
    Contest("hierarchical_vs_round_robin 2x2", (0, 1, 0, 1), "hierarchical", 3.0),
    Contest("hierarchical_vs_round_robin 2x4", (0, 1) * 4, "hierarchical", 7.0),
)
MEBIBYTES = {"100mbit": 16, "1gbit": 16, "10gbit": 64, None: 64}
ROUNDS, QUICK_ROUNDS = 6, 2


def times(world: RankPlace, algorithm: Algorithm, mebibytes: int, rounds: int) -> list[float]:
    """Return gloo's seconds over ours, round by round."""
    torch.set_num_threads(1)
    group = join(world, GroupAborter(), {"replicate": [list(range(world.world_size))]}, reduces=frozenset({algorithm}))
    assert group.reduction_groups is not None
    reduction = reduction_for(algorithm, CompressionOptions(), group.reduction_groups)
    replicas = group.reduction_groups.replicas
    values = torch.zeros(mebibytes << 18)
    bucket = GradientBucket(values, [GradientPiece("w", tuple(values.shape), 0, values.numel())], 1)
    found = []
    for _ in range(rounds + 1):
        by_gloo = timed(group, lambda: replicas.sum(values))
        own = timed(group, lambda: reduction.sum(bucket))
        found.append(by_gloo / own)
    group.barrier_and_leave()
    return found[1:]


def timed(group: Group, work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes on this rank, begun by all ranks together."""
    group.sum(torch.zeros(1)).wait()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(rounds: int, rates: Sequence[str | None], names: str) -> list[Figure]:
    figures = []
    for rate in rates:
        for contest in CONTESTS:
            if names not in contest.name:
                continue
            with shaped_hosts(max(contest.placement) + 1, rate) as network:
                by_rank = run_on_hosts(times, contest.placement, network, contest.algorithm, MEBIBYTES[rate], rounds, timeout=500.0)
            ratios = [statistics.median(each) for each in zip(*by_rank, strict=True)]
            theory = f"; theory, in bytes: {contest.bound:g}" if contest.bound is not None else ""
            told = f"{MEBIBYTES[rate]} MiB, {rate or 'unshaped'}{theory}"
            figures.append(summarize(f"{contest.name} {rate or 'unshaped'}", "ratio", ratios, told))
            report(figures[-1:], None)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="two rounds instead of six")
    parser.add_argument("--only", default="", metavar="WORDS", help="contests whose name has these words in it")
    parser.add_argument("--rate", choices=[rate or "unshaped" for rate in RATES], help="only this speed of the links")
    given = parser.parse_args()
    rates = [rate for rate in RATES if given.rate in (None, rate or "unshaped")]
    print(machine())
    figures = measure(QUICK_ROUNDS if given.quick else ROUNDS, rates, given.only)
    print()
    report(figures, given.json)


if __name__ == "__main__":
    main()
