"""Checkpoints under torture: kills, damage, full and failing disks, power cuts, an object store. One table; exit 1 if anything was not as promised.

python -m scripts.torture                    # in full: a few minutes
python -m scripts.torture --quick            # what `make test` runs
python -m scripts.torture --seed 7           # the same faults again, but for what the clock decides
python -m scripts.torture kills disks        # only these; "behind" is kills in saves behind other work
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from scripts.faults.disks import why_not
from scripts.torture import kills
from scripts.torture.damage import Spoiler
from scripts.torture.disks import SCENES, PowerCuts, mount_privately, why_no_machine
from scripts.torture.kills import Struck
from scripts.torture.saver import warm_up

SEED = 20
SHOWN_PROBLEMS = 10
#: The quick run strikes one in so many of a save's calls.
SAMPLED_CALLS = 12


@dataclass(frozen=True)
class Amount:
    kills: int
    damages: int
    power_cuts: int
    every_call: bool
    stored_kills: int  # of all ranks: each takes a rendezvous and an S3 server's time
    stored_damages: int


FULL = Amount(kills=500, damages=1000, power_cuts=100, every_call=True, stored_kills=200, stored_damages=1000)
QUICK = Amount(kills=15, damages=60, power_cuts=5, every_call=False, stored_kills=5, stored_damages=20)


@dataclass(frozen=True)
class Row:
    torture: str
    times: int
    how_it_went: str
    problems: tuple[str, ...]
    skipped: str | None = None  # why it was not done


def killed(folder: Path, amount: Amount, seed: int, *, behind: bool = False) -> Iterator[Row]:
    how = ", behind" if behind else ""
    struck = Struck(folder / "random", seed, behind=behind)
    struck.killed_at_random(amount.kills)
    yield row(f"kill -9 at a random moment{how}", struck)
    every = 1 if amount.every_call else SAMPLED_CALLS
    strikes = {f"kill -9 before a call{how}": partial(Struck.killed_before_calls, every=every)}
    for error in ("EIO", "ENOSPC", "EROFS"):
        strikes[f"{error} from a call{how}"] = partial(Struck.refused_at_calls, error=error, every=every)
    for name, strike in strikes.items():
        yield traced(name, every, Struck(folder / name, seed, behind=behind), strike)


def traced(name: str, every: int, struck: Struck, strike: Callable[[Struck], None]) -> Row:
    reason = kills.why_no_tracer()
    if reason is not None:
        return Row(name, 0, "", (), reason)
    strike(struck)
    return row(f"{name}, {'each' if every == 1 else f'each {every}th'}", struck)


def damaged(folder: Path, amount: Amount, seed: int) -> Iterator[Row]:
    spoiler = Spoiler(folder, seed)
    spoiler.try_each(amount.damages)
    yield spoiled("damage", spoiler)
    spoiler.problems.clear()
    bits = spoiler.flip_every_bit_of_the_manifest()
    yield Row("each bit of a manifest", bits, "all refused" if not spoiler.problems else "", tuple(spoiler.problems))
    spoiler.problems.clear()
    spoiler.add_a_stranger()
    yield Row("files that belong to nobody", 1, "ignored" if not spoiler.problems else "", tuple(spoiler.problems))


def on_disks(folder: Path, amount: Amount, seed: int) -> Iterator[Row]:
    for name, scene in SCENES.items():
        reason = why_no_machine()
        if reason is not None:
            yield Row(name, 0, "", (), reason)
            continue
        disk = scene(folder / name)
        yield Row(name, len(disk.reasons), f"{len(disk.reasons)} of {disk.step} saves failed, the next one worked", tuple(disk.problems))


def without_power(folder: Path, amount: Amount, seed: int) -> Iterator[Row]:
    reason = why_no_machine()
    if reason is not None:
        yield Row("power cut", 0, "", (), reason)
        return
    cuts = PowerCuts(folder, seed)
    cuts.cut_at_random(amount.power_cuts)
    yield row("power cut at a random moment", cuts)


def stored(folder: Path, amount: Amount, seed: int) -> Iterator[Row]:
    """Two ranks that save to an object store, at once and behind other work, and damaged objects."""
    from scripts.torture.stored import SpoilerInStore, StruckInStore  # moto's server takes two seconds to import
    from tests.object_store import CREDENTIALS, object_store
    from tests.ranks import store_server

    os.environ.update(CREDENTIALS)
    with object_store() as store:
        for name, behind in (("at-once", False), ("behind", True)):
            with store_server() as rendezvous:
                struck = StruckInStore(folder / name, seed, store, rendezvous, behind=behind)
                struck.killed_at_random(amount.stored_kills)
            yield row(f"kill -9, store{', behind' if behind else ''}", struck)
        spoiler = SpoilerInStore(folder / "damage", seed, store)
        spoiler.try_each(amount.stored_damages)
        yield spoiled("damage, store", spoiler)


def spoiled(name: str, spoiler: Spoiler) -> Row:
    found = ", ".join(f"{count} x {name.replace('_', ' ')}" for name, count in spoiler.tried.most_common())
    return Row(name, spoiler.tried.total(), found, tuple(spoiler.problems))


def row(name: str, struck: Struck) -> Row:
    went = ", ".join(f"{count} {where}" for where, count in struck.summary.most_common())
    return Row(name, len(struck.finds), went, tuple(struck.problems))


TORTURES: dict[str, Callable[[Path, Amount, int], Iterator[Row]]] = {
    "kills": killed,
    "behind": partial(killed, behind=True),
    "damage": damaged,
    "disks": on_disks,
    "power": without_power,
    "store": stored,  # the last: others fork this process, which has threads from here on
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", help=f"of {', '.join(TORTURES)}; all of them by default")
    parser.add_argument("--quick", action="store_true", help="a small sample of each")
    parser.add_argument("--seed", type=int, default=SEED, help=f"{SEED} by default")
    parser.add_argument("--json", type=Path, help="write the table to this file")
    arguments = parser.parse_args()
    if unknown := set(arguments.which) - set(TORTURES):
        parser.error(f"unknown torture {', '.join(sorted(unknown))}; there are {', '.join(TORTURES)}")
    logging.disable()  # refused deletions are meant to be refused here
    warm_up()
    if why_not() is None:
        mount_privately()
    rows = []
    with tempfile.TemporaryDirectory(prefix="paceline-torture-") as folder:
        for name in (name for name in TORTURES if name in (arguments.which or TORTURES)):
            for each in TORTURES[name](Path(folder) / name, QUICK if arguments.quick else FULL, arguments.seed):
                show(each)
                rows.append(each)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in rows], indent=2) + "\n")
    wrong = sum(len(each.problems) for each in rows)
    print(f"seed {arguments.seed}: {sum(each.times for each in rows)} faults, {wrong} problems", flush=True)
    return 1 if wrong else 0


def show(each: Row) -> None:
    if each.skipped is not None:
        print(f"{each.torture:32} skipped: {each.skipped}", flush=True)
        return
    print(f"{each.torture:32} {each.times:>6}  {'ok' if not each.problems else 'WRONG':5}  {each.how_it_went}", flush=True)
    for problem in each.problems[:SHOWN_PROBLEMS]:
        print(f"    {problem}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
