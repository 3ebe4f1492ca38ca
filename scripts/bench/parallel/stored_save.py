"""What a checkpoint costs training when it goes to an object store: behind the steps, beside one behind the steps on the node's own disk, beside one
that training waits for, and beside what a script does by itself: torch.save, and boto3's upload.

The store is moto's S3 server in this process, on the same machine: its work takes from the ranks' cores, and no network is between them. Runs of all
kinds take turns, and a round is one of each; the script's save runs while nothing trains.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import torch

from scripts.bench.figures import Figure, summarize
from scripts.bench.parallel.async_save import BESIDE_THE_JOB, Run, SavePlace, milliseconds, run
from scripts.bench.parallel.workload import RANKS
from tests.object_store import BUCKET, CREDENTIALS, object_store

REGION = "us-east-1"


@dataclass(frozen=True)
class StoredRound:
    """One run of each kind, and a script's save of as many bytes."""

    stored: Run
    local: Run
    waiting: Run
    script_seconds: float


def measure(count: int) -> list[Figure]:
    with object_store() as store:
        return figures(list(rounds(store.target, count)))


def rounds(endpoint: str, count: int) -> Iterator[StoredRound]:
    """Run the three kinds of jobs in an order that turns from round to round."""
    for number in range(count):
        bucket = SavePlace({"directory": f"s3://{BUCKET}/round-{number}", "options": {"endpoint": endpoint, "region": REGION}}, CREDENTIALS)
        kinds: dict[str, tuple[bool, SavePlace]] = {
            "stored": (True, bucket),
            "local": (True, BESIDE_THE_JOB),
            "waiting": (False, bucket),
        }
        names = list(kinds)
        with tempfile.TemporaryDirectory() as folder:
            runs = {
                name: run(Path(folder) / name, behind=kinds[name][0], place=kinds[name][1])
                for name in names[number % len(names) :] + names[: number % len(names)]
            }
            took = script_save(Path(folder) / "state.pt", endpoint, runs["stored"].saves[0]["bytes"])
        yield StoredRound(**runs, script_seconds=took)


def script_save(file: Path, endpoint: str, size: int) -> float:
    """Seconds that a script without Paceline stands still: it writes `size` bytes of tensors to its disk, and uploads them."""
    keys = {"aws_access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"]}
    client: Any = boto3.client("s3", endpoint_url=endpoint, region_name=REGION, **keys)
    state = {"state": torch.rand(size // 4)}
    began = time.perf_counter()
    torch.save(state, file)
    client.upload_file(str(file), BUCKET, "script/state.pt")
    return time.perf_counter() - began


def figures(found: Sequence[StoredRound]) -> list[Figure]:
    stored, local, waiting = ([save for each in found for save in getattr(each, kind).saves] for kind in ("stored", "local", "waiting"))
    beside = {
        name: summarize("", "", samples, "").median
        for name, samples in (
            ("local", milliseconds(local)),
            ("waiting", milliseconds(waiting)),
            ("script", [1000 * each.script_seconds for each in found]),
        )
    }
    size = f"{stored[0]['bytes'] / 1e6:.0f} MB by {RANKS} ranks"
    compared = (
        f"on the node's disk {beside['local']:.3g}, training waits {beside['waiting']:.3g}, torch.save and boto3 {beside['script']:.3g}"
    )
    return [
        summarize("s3_checkpoint_stall_ms", "ms", milliseconds(stored), f"{size}; {compared}"),
        summarize("s3_checkpoint_write_seconds", "s", [save["write_seconds"] for save in stored], f"{size}, hashed, uploaded, looked for"),
        summarize(
            "s3_checkpoint_slowdown", "ratio", [save["slowdown"] for save in stored], "steps while a checkpoint goes up, over others"
        ),
    ]
