"""The analysis of a large experiment through the API, from stored points to the answer: `analyze_over_rest_seconds`.

A thousand ended trials with a thousand steps each are in the databases. POST analyze is asked for again and again, and beside it the experiment's own
page, which must not wait for it. The first analysis, which also starts the process that reads histories, is a figure of its own.

    python -m scripts.bench.trials.analyze [--trials N] [--steps N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

import httpx

from scripts.bench.edges.load.coordinator import coordinator
from scripts.bench.figures import Figure, report, summarize
from scripts.bench.stored_experiment import StoredExperiment, write_experiment
from scripts.steps import say

ANALYSES = 5
#: Between two questions for the experiment's page.
PAUSE_SECONDS = 0.05


async def analyses(client: httpx.AsyncClient, path: str, trials: int, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each analysis, and those of each question for the experiment meanwhile."""
    took, beside = list[float](), list[float]()

    async def ask_beside() -> None:
        while True:
            began = time.monotonic()
            (await client.get(path)).raise_for_status()
            beside.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE_SECONDS)

    asking = asyncio.create_task(ask_beside())
    for _ in range(count):
        began = time.monotonic()
        answer = await client.post(f"{path}/analyze")
        took.append(time.monotonic() - began)
        answer.raise_for_status()
        if (found := answer.json()["analysis"])["trials"] != trials:
            raise RuntimeError(f"{found['trials']} of {trials} trials are in the analysis")
    asking.cancel()
    return took, beside


async def measure(order: StoredExperiment) -> list[Figure]:
    made: list[str] = []

    async def prepare(data: Path) -> None:
        made.append(await write_experiment(data, None, order))
        say(f"stored {order.trials:,} trials")

    async with coordinator(0, prepare=prepare) as target, target.client() as client:
        path = f"/experiments/{made[0]}"
        first, _ = await analyses(client, path, order.trials, 1)
        took, beside = await analyses(client, path, order.trials, ANALYSES)
    size = f"{order.trials:,} trials x {order.steps:,} steps, SQLite"
    return [
        summarize("analyze_over_rest_seconds", "s", took, f"{size}; goal 2"),
        summarize("analyze_first_seconds", "s", first, "the first one, which starts the process that reads histories"),
        summarize("experiment_beside_analysis_s", "s", beside, "the experiment's own page meanwhile"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    report(asyncio.run(measure(StoredExperiment(trials=arguments.trials, steps=arguments.steps))), arguments.json)


if __name__ == "__main__":
    main()
