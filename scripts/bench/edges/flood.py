"""One rank prints 100 MB/s: how fast the API answers meanwhile, beside how fast it answers while nothing is printed.

A stack of its own with one agent. The job list, the nodes and the summary are asked for in turn by one client; a pause of the same length
without the flood comes before it, in the same processes.

    python -m scripts.bench.edges.flood [--seconds S] [--rate MB] [--json FILE]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from paceline.cli.client import RestClient
from scripts.bench.figures import Figure, report
from scripts.faults.rig import rig
from scripts.soak.readings import Prober

SECONDS, RATE = 30.0, 100.0
START_TIMEOUT_S = 60.0
POLL_S = 0.1
SCRIPT = Path(__file__).with_name("printing.py")
PATHS = ("/training/jobs", "/cluster/nodes", "/metrics/cluster/summary")


def measure(seconds: float, rate: float) -> list[Figure]:
    with rig(agents=1) as ours:
        settings = ours.client.settings
        prober = Prober(settings.url, settings.key or "", PATHS, every=0.02)
        prober.start()
        try:
            time.sleep(seconds)
            quiet = prober.take()
            _start(ours.client, seconds, rate)
            prober.take()
            time.sleep(seconds)
            loud = prober.take()
        finally:
            prober.stop()
    ratio, what = loud["api_p99_ms"] / quiet["api_p99_ms"], f"{rate:g} MB/s for {seconds:g} s; {quiet['api_p99_ms']:.1f} ms while quiet"
    return [
        Figure("api_p99_under_flood_ratio", "", ratio, ratio, 1, f"goal 2; {what}"),
        Figure("api_p99_under_flood_ms", "ms", loud["api_p99_ms"], loud["api_p99_ms"], 1, what),
        Figure("loop_p99_under_flood_ms", "ms", loud["loop_p99_ms"], loud["loop_p99_ms"], 1, "an answer that comes from memory"),
    ]


def _start(client: RestClient, seconds: float, rate: float) -> None:
    """Returns when it prints."""
    script = {"path": str(SCRIPT), "args": [str(seconds + 5), str(rate)]}
    job_id = str(client.create("/training/jobs", {"name": "flood", "script": script})["id"])
    deadline = time.monotonic() + START_TIMEOUT_S
    while not client.get(f"/training/jobs/{job_id}/logs", limit=1)["items"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the flood did not begin within {START_TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rate", type=float, default=RATE, metavar="MB", help="a second")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    report(measure(arguments.seconds, arguments.rate), arguments.json)


if __name__ == "__main__":
    main()
