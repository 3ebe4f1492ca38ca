"""A job whose tokens and checkpoints lie in an object store, on two nodes that share nothing, goes on after a kill -9; each node fetches a set once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.object_store import BUCKET, CREDENTIALS, FaultyStore, object_store
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

STEPS, EVERY, PATIENCE = 300, 40, 240
PASSED = ",".join(CREDENTIALS)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store() as found:
        monkeypatch.setenv("PACELINE_STORE_ENDPOINTS", found.url)
        yield found


def tokens_in(store: FaultyStore, stack: Stack, folder: Path) -> dict[str, Any]:
    """Tokenize files of this project, and copy the set to the bucket as the page says."""
    done = stack.paceline("data", "tokenize", str(ROOT / "training"), "--match", "*.py", "--output", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    for path in sorted(folder.iterdir(), key=lambda path: path.name == "manifest.json"):
        store.ask("PUT", f"/sets/code/{path.name}", path.read_bytes())
    return dict(json.loads(done.stdout))


def stored_job(store: FaultyStore, vocabulary: int, **overrides: Any) -> dict[str, Any]:
    spec = tiny_gpt("stored", STEPS, checkpoint_every=EVERY, **overrides)
    spec["model"] |= {"vocab_size": vocabulary}
    spec["data"] = {"kind": "tokens", "path": f"s3://{BUCKET}/sets/code", "options": store.options}
    spec["checkpoint"] |= {"directory": f"s3://{BUCKET}/runs", "options": store.options}
    return spec


def committed(stack: Stack, job_id: str) -> bool:
    """Whether the job has a checkpoint. Fails once the job has failed."""
    job = stack.job(job_id)
    assert job["state"] != "failed", job["failure"]
    return bool(stack.get(f"/checkpoints/jobs/{job_id}")["items"])


def fetches(store: FaultyStore) -> dict[str, int]:
    """How often each file of the set was asked for, but its manifest."""
    paths = [request.path for request in store.seen if request.method == "GET" and "/sets/code/" in request.path]
    return {path: paths.count(path) for path in paths if not path.endswith("manifest.json")}


@pytest.fixture
def second_node(empty_stack: Stack, store: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a second agent: its cache, its checkpoints and its data lie there, as on another machine. Both agents have two slots, and the
    credentials of `store`."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "one"))
    empty_stack.bring_up("--port", str(free_port()), "--agents", "1", "--slots-per-agent", "2", "--gpus", "none", "--pass-env", PASSED)
    token = empty_stack.client.post("/cluster/nodes", json={}).json()["token"]
    folder = tmp_path / "two"
    command = [sys.executable, "-m", "paceline.cluster.agent.main", "--server", empty_stack.server, "--name", "far", "--data"]
    command += [str(folder / "data"), "--checkpoints", str(folder / "checkpoints"), "--slots", "2", "--gpus", "none", "--pass-env", PASSED]
    environment = {**os.environ, "PACELINE_JOIN_TOKEN": token, "PACELINE_CACHE": str(folder)}
    with (tmp_path / "two.log").open("wb") as log:
        agent = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        wait_until("four slots", lambda: empty_stack.free_slots() == 4, 60)
        yield folder
    finally:
        agent.terminate()
        agent.wait(30)


def test_a_job_reads_and_saves_in_a_store_and_goes_on_after_a_kill(
    empty_stack: Stack, second_node: Path, store: FaultyStore, tmp_path: Path
) -> None:
    made = tokens_in(store, empty_stack, tmp_path / "tokens")
    spec = stored_job(store, made["vocabulary"], fault_tolerance={"recovery": "restart"})
    spec["resources"] = {"nodes": 2, "slots_per_node": 2}
    job_id = empty_stack.submit(spec)
    wait_until("a checkpoint, or the job's end", lambda: committed(empty_stack, job_id), PATIENCE)
    victim = next(rank for rank in empty_stack.job(job_id)["ranks"] if rank["rank"] == 3)
    os.kill(victim["pid"], signal.SIGKILL)

    done = empty_stack.wait_for_state(job_id, "completed", "failed", timeout=PATIENCE)
    assert (done["state"], done["restarts"], done["generation"]) == ("completed", 1, 2), done
    resumed_at = done["generations"][1]["start_step"]
    assert (resumed_at >= EVERY, resumed_at % EVERY) == (True, 0)
    assert {step for step, _ in empty_stack.raw_curve(job_id)} == set(range(1, STEPS + 1))
    audit = empty_stack.get(f"/training/jobs/{job_id}/samples")
    assert (audit["exactly_once"], audit["samples"]) == (True, STEPS * 8)
    asked = fetches(store)
    assert len(asked) == len(list((tmp_path / "tokens").iterdir())) - 1
    assert set(asked.values()) == {2}, asked  # two nodes of two ranks, two generations: each file once a node
    copies = [folder / "token-sets" / made["sha256"] for folder in (tmp_path / "one", second_node)]
    assert all((copy / "manifest.json").is_file() for copy in copies)
