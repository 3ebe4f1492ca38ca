"""`python -m paceline.cluster.simulation.main`: simulated nodes for one coordinator, until standard input ends, or SIGINT or SIGTERM.

Join tokens, a JSON object by node name, are the first line of standard input: a command line can be read by others. Where the input ends
the process that wanted the simulation is gone, and this one goes too.

Exit codes: 0 ended as asked, 1 refused or impossible, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence

import uvloop

from paceline.cluster.simulation.clock import SimulatedClock
from paceline.cluster.simulation.cluster import JoinFailedError, SimulatedCluster, join_all
from paceline.cluster.simulation.faults import FaultRates
from paceline.cluster.simulation.gang import GangSettings
from paceline.cluster.simulation.machines import H100, SimulatedMachine

LEAVE_SECONDS = 3.0

log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m paceline.cluster.simulation.main", description="Simulate nodes for a coordinator.")
    made.add_argument("--server", required=True, metavar="URL", help="of the coordinator")
    made.add_argument("--slots", type=int, default=8, help="cards of each node (default: %(default)s)")
    made.add_argument("--speedup", type=float, default=1.0, help="modelled seconds in one of the clock's (default: %(default)s)")
    made.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: %(default)s)")
    for name, what in (("crashes", "ranks that die"), ("hangs", "ranks that hang"), ("node-deaths", "nodes that die")):
        made.add_argument(f"--{name}", type=float, metavar="RATE", help=f"{what}, per modelled hour over the whole cluster")
    made.add_argument("--tainted", action="store_true", help="keep jobs off that do not tolerate simulated nodes")
    made.add_argument("--silences", type=float, metavar="RATE", help="nodes that fall silent for a minute, likewise")
    return made


def rates_of(arguments: argparse.Namespace, slots: int) -> FaultRates:
    """The rates that were given; those published for so many cards in the place of the others."""
    published = FaultRates.published(slots)
    given = {"crash": arguments.crashes, "hang": arguments.hangs, "node": arguments.node_deaths, "silence": arguments.silences}
    return FaultRates(**{kind: getattr(published, kind) if rate is None else rate for kind, rate in given.items()})


def main(words: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(words)
    logging.basicConfig(level=logging.INFO, format="simulation: %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    logging.getLogger("paceline.cluster.agent").setLevel(logging.ERROR)  # each of the agents would say that the coordinator has gone
    logging.getLogger("paceline.cluster.agent.ranks.rank_table").setLevel(logging.CRITICAL)  # ranks that end are what is simulated
    tokens: dict[str, str] = json.loads(sys.stdin.readline() or "{}")
    try:
        uvloop.run(serve(arguments, tokens))
    except JoinFailedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


async def serve(arguments: argparse.Namespace, tokens: dict[str, str]) -> None:
    """Join, and run until it is time to end. Raises JoinFailedError."""
    settings = GangSettings(SimulatedClock(arguments.speedup), H100, arguments.slots, arguments.seed)
    cluster = SimulatedCluster(arguments.server, settings, rates_of(arguments, len(tokens) * arguments.slots))
    ends = _time_to_end()
    for name, credential in (await join_all(arguments.server, tokens)).items():
        cluster.add(SimulatedMachine(name, arguments.slots, tainted=arguments.tainted), credential)
    running = asyncio.create_task(cluster.run())
    ending = asyncio.create_task(ends.wait())
    await asyncio.wait([running, ending], return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await cluster.leave()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    else:
        running.result()
    ending.cancel()


def _time_to_end() -> asyncio.Event:
    ends, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ends.set)

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            ends.set()

    loop.add_reader(sys.stdin.fileno(), read)
    return ends


if __name__ == "__main__":
    raise SystemExit(main())
