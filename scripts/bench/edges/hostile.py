"""Everything that harms: how many of the hostile suite's cases harm other users, and how late the event loop is while hostile requests come.

The suite is `tests/hostile`: scripts beside a job that must not lose anything, and requests that strangers and careless users send. The requests
are then sent once more, one behind the other, to a coordinator process of its own, while another client asks what is answered from memory.

    python -m scripts.bench.edges.hostile [--seconds S] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import re
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from scripts.bench.edges.load.coordinator import Coordinator, coordinator
from scripts.bench.figures import Figure, report
from scripts.soak.readings import Prober
from scripts.steps import ROOT
from tests.hostile.requests import CASES, Hostile

SECONDS = 20.0
SUITE_TIMEOUT_S = 1200.0
ANSWER_SECONDS = 30.0


def measure(seconds: float) -> list[Figure]:
    passed, failed = suite()
    lag, sent = asyncio.run(loop_lag(seconds))
    return [
        Figure("hostile_cases", "", failed, failed, passed + failed, f"of {passed + failed}, those that harm other users; goal 0"),
        Figure("loop_lag_p99_ms", "ms", lag, lag, sent, "an answer from memory while hostile requests come; goal 50"),
    ]


def suite() -> tuple[int, int]:
    """Return (cases that harm no other user, cases that do)."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "tests/hostile"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SUITE_TIMEOUT_S, check=False)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout.splitlines()[-1])}
    if not counts:
        raise RuntimeError(f"the hostile suite did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)


async def loop_lag(seconds: float) -> tuple[float, int]:
    """Return (p99 in ms of requests answered from memory, number of requests sent)."""
    async with coordinator(0) as target:
        prober = Prober(target.url, target.key, (), every=0.005)
        prober.start()
        try:
            sent = await asyncio.to_thread(send_all, target, time.monotonic() + seconds)
        finally:
            prober.stop()
    return prober.take()["loop_p99_ms"], sent


def send_all(target: Coordinator, deadline: float) -> int:
    """Send each case in turn, again and again."""
    sent = 0
    while time.monotonic() < deadline:
        for case in CASES:
            send(target, case)
            sent += 1
    return sent


def send(target: Coordinator, case: Hostile) -> None:
    url = urlsplit(target.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=ANSWER_SECONDS)
    headers = ({"Content-Type": case.type} if case.type else {}) | ({"Authorization": f"Bearer {target.key}"} if case.known else {})
    try:
        connection.putrequest(case.method, case.path, skip_host=case.hosts is not None)
        for host in case.hosts or ():
            connection.putheader("Host", host)
        for name, value in {**headers, **case.headers, "Content-Length": str(len(case.body))}.items():
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders(case.body)
        connection.getresponse().read()
    except ConnectionError:
        return  # a refused client may be cut off in the middle of a body
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    report(measure(arguments.seconds), arguments.json)


if __name__ == "__main__":
    main()
