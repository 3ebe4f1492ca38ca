"""Hours of mixed load and faults on a stack of its own: does anything grow that should not?

    python -m scripts.soak [--hours 8 | --minutes M] [--seed N] [--json FILE]

A resident job of two ranks trains through all of it, while small jobs come and go, some of which harm, people look and change their minds,
and ranks, agents and (in the warm-up, the first eighth) the coordinator are killed. Memory, descriptors and threads of each
process, the databases and the p99 of answers are read every few seconds. After the warm-up they must be flat: what jobs record is limited
to a few megabytes, so that its database is as full as it may be by then. The history of jobs, which is kept for a year, must grow no faster
than the number of jobs. No question may be refused or stay unanswered after the warm-up, and at the end the resident job's samples must
each have been used exactly once; a run of over an hour has no longer the points to tell.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.cli.errors import ApiProblemError
from paceline.cli.job_facts import has_ended
from scripts.faults.gang import END_TIMEOUT_S, running
from scripts.faults.job import gpt_job
from scripts.faults.rig import Rig, end_in_order, rig
from scripts.soak.acts import LOAD, UPHEAVAL, Scene, drawn
from scripts.soak.readings import Prober, Reading, databases, processes
from scripts.soak.verdict import Trend, trends
from scripts.steps import say

HOURS = 8.0
WARM_UP = 1 / 8  # of the whole time
AGENTS = 4
RESIDENT_RANKS = 2
ACT_SECONDS = 3.0
READINGS = 240  # in all
#: What the coordinator may keep: little, so that its databases are full after the warm-up.
LIMITS = {"PACELINE_KEEP_SIZE": "20MB", "PACELINE_KEEP_RECENT_HOURS": "0"}
PROBED = ("/training/jobs", "/cluster/nodes", "/metrics/cluster/summary")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, default=HOURS)
    length.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: a new one")
    parser.add_argument("--json", type=Path, help="write all readings to this file")
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes if arguments.minutes else 3600 * arguments.hours
    end_in_order()
    say(f"soaking for {seconds / 60:.0f} minutes, seed {arguments.seed}")
    os.environ.update(LIMITS)
    readings = list[Reading]()
    try:
        scene, broken = soak(seconds, arguments.seed, readings)
    finally:
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(reading) for reading in readings], indent=1) + "\n")
    say(f"played: {scene.done}; refused: {scene.refused}")
    for text in broken:
        say(f"NOT KEPT: {text}")
    found = trends(readings, seconds * WARM_UP)
    print(table(found))
    grown = [trend for trend in found if not trend.is_flat]
    for trend in grown:
        say(f"NOT KEPT: {trend.name} has grown from {trend.first:.1f} to {trend.last:.1f}")
    return 1 if broken or grown else 0


def soak(seconds: float, seed: int, readings: list[Reading]) -> tuple[Scene, list[str]]:
    """Add to `readings` while it goes on; return what was played, and which promises were broken. It ends early with the resident job."""
    spec = gpt_job("resident", spares=0)
    spec |= {"resources": {"nodes": RESIDENT_RANKS}, "checkpoint": {"every_steps": 200}}
    with rig(AGENTS) as ours, running(ours.client, ours.layout, spec) as gang:
        gang.observer.reach(0, 5, END_TIMEOUT_S)
        scene = Scene(ours, gang.job_id, RESIDENT_RANKS, random.Random(seed))
        settings = ours.client.settings
        prober = Prober(settings.url, settings.key or "", PROBED)
        prober.start()
        try:
            act_and_read(scene, ours, prober, seconds, readings)
        finally:
            prober.stop()
        scene.cancel_all()  # they may hold the slots that the resident job lost with its last agent
        if has_ended(job := gang.job()):
            return scene, [
                f"the resident job {job.state} at step {job.progress.step}: {job.failure.message if job.failure else job.end_reason}"
            ]
        gang.observer.whole(RESIDENT_RANKS, END_TIMEOUT_S)
        gang.cancel()
        samples = told_samples(ours, gang.job_id)
        job = gang.job()
        say(f"the resident job has come to step {job.progress.step} in generation {job.generation}")
    broken = [] if samples is None or samples["exactly_once"] is True else [f"the resident job's samples: {samples}"]
    broken += [f"the resident job restarted {job.restarts} times"] if job.restarts else []
    broken += [f"{prober.refused} questions after the warm-up were refused or not answered"] if prober.refused else []
    return scene, broken


def told_samples(ours: Rig, job_id: str) -> dict[str, Any] | None:
    """Ask whether a job's samples were each used once; None where the points that tell have made room for others, as in a long run."""
    try:
        return dict(ours.client.get(f"/training/jobs/{job_id}/samples"))
    except ApiProblemError as refused:
        if refused.code != "no_longer_kept":
            raise
        say(f"samples are not judged: {refused}")
        return None


def act_and_read(scene: Scene, ours: Rig, prober: Prober, seconds: float, readings: list[Reading]) -> None:
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds and not has_ended(ours.client.job(scene.resident)):
        scene.play(drawn(scene, UPHEAVAL if at < seconds * WARM_UP else LOAD))
        if at < seconds * WARM_UP:
            prober.refused = 0  # the coordinator is killed now and then
        if at >= len(readings) * seconds / READINGS:
            readings.append(Reading(at, processes(ours.layout) | databases(ours.layout.data) | prober.take()))
            say(f"  {at / 60:.1f} min: {', '.join(f'{name} {value:.0f}' for name, value in sorted(readings[-1].values.items()))}")
        time.sleep(ACT_SECONDS)


def table(found: list[Trend]) -> str:
    rows = [f"{'figure':<32} {'first':>10} {'last':>10}"]
    return "\n".join(
        rows + [f"{each.name:<32} {each.first:>10.1f} {each.last:>10.1f}{'' if each.is_flat else '  GROWN'}" for each in found]
    )


if __name__ == "__main__":
    sys.exit(main())
