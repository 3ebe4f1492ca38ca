"""Jobs whose tokens and checkpoints lie in an object store, on two nodes that share nothing, go on after a kill -9, with new processes or in place; each
node fetches a set once, and the store keeps what `keep_last` says."""

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
KEPT = 2
PASSED = ",".join(CREDENTIALS)


@pytest.fixture(scope="module")
def store() -> Iterator[FaultyStore]:
    with pytest.MonkeyPatch.context() as patch, object_store() as found:
        for name, value in (CREDENTIALS | {"PACELINE_STORE_ENDPOINTS": found.url}).items():
            patch.setenv(name, value)
        yield found


def tokens_in(store: FaultyStore, stack: Stack, folder: Path) -> dict[str, Any]:
    """Tokenize files of this project, and copy the set to the bucket as the page says."""
    done = stack.paceline("data", "tokenize", str(ROOT / "training"), "--match", "*.py", "--output", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    for path in sorted(folder.iterdir(), key=lambda path: path.name == "manifest.json"):
        store.ask("PUT", f"/sets/code/{path.name}", path.read_bytes())
    return dict(json.loads(done.stdout))


def stored_job(store: FaultyStore, **overrides: Any) -> dict[str, Any]:
    spec = tiny_gpt("stored", STEPS, checkpoint_every=EVERY, **overrides)
    spec["checkpoint"] |= {"directory": f"s3://{BUCKET}/runs", "options": store.options, "keep_last": KEPT, "keep_best": 0}
    return spec


def committed(stack: Stack, job_id: str) -> bool:
    """Whether the job has a checkpoint. Fails once the job has failed."""
    job = stack.job(job_id)
    assert job["state"] != "failed", job["failure"]
    return bool(stack.get(f"/checkpoints/jobs/{job_id}")["items"])


def folders(store: FaultyStore, job_id: str) -> set[str]:
    """The checkpoints of the job of which the store has any file."""
    return {key.split("/")[2] for key in store.names(f"runs/{job_id}/step-")}


def fetches(store: FaultyStore, folder: str) -> dict[str, int]:
    """How often each file of the folder was asked for, but its manifest."""
    paths = [request.path for request in store.seen if request.is_for("GET", folder)]
    return {path: paths.count(path) for path in paths if not path.endswith("manifest.json")}


@pytest.fixture(scope="module")
def nodes(empty_stack: Stack, store: FaultyStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Start two agents with two slots each and the credentials of `store`. Returns the folders of their caches; the second one's checkpoints and data are
    in its folder too, as on another machine."""
    folder, first = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_CACHE", str(first))
        empty_stack.bring_up("--port", str(free_port()), "--agents", "1", "--slots-per-agent", "2", "--gpus", "none", "--pass-env", PASSED)
    token = empty_stack.client.post("/cluster/nodes", json={}).json()["token"]
    command = [sys.executable, "-m", "paceline.cluster.agent.main", "--server", empty_stack.server, "--name", "far", "--data"]
    command += [str(folder / "data"), "--checkpoints", str(folder / "checkpoints"), "--slots", "2", "--gpus", "none", "--pass-env", PASSED]
    environment = {**os.environ, "PACELINE_JOIN_TOKEN": token, "PACELINE_CACHE": str(folder)}
    with (folder / "log").open("wb") as log:
        agent = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        wait_until("four slots", lambda: empty_stack.free_slots() == 4, 60)
        yield first, folder
    finally:
        agent.terminate()
        agent.wait(30)


def test_a_job_reads_and_saves_in_a_store_and_goes_on_after_a_kill(
    empty_stack: Stack, nodes: tuple[Path, Path], store: FaultyStore, tmp_path: Path
) -> None:
    made = tokens_in(store, empty_stack, tmp_path / "tokens")
    spec = stored_job(store, fault_tolerance={"recovery": "restart"}, resources={"nodes": 2, "slots_per_node": 2})
    spec["model"] |= {"vocab_size": made["vocabulary"]}
    spec["data"] = {"kind": "tokens", "path": f"s3://{BUCKET}/sets/code", "options": store.options}
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
    asked = fetches(store, "/sets/code/")
    assert len(asked) == len(list((tmp_path / "tokens").iterdir())) - 1
    assert set(asked.values()) == {2}, asked  # two nodes of two ranks, two generations: each file once a node
    assert all((folder / "token-sets" / made["sha256"] / "manifest.json").is_file() for folder in nodes)
    newest = {f"step-{step}.g2" for step in (STEPS - STEPS % EVERY, STEPS)}
    wait_until("retention", lambda: folders(store, job_id) == newest, PATIENCE)
    kept = [each for each in empty_stack.get(f"/checkpoints/jobs/{job_id}")["items"] if each["state"] == "committed"]
    assert {Path(each["directory"]).name for each in kept} == newest


def test_a_lost_part_is_restored_from_the_store_beside_ranks_that_stay(
    empty_stack: Stack, nodes: tuple[Path, Path], store: FaultyStore
) -> None:
    """FSDP: the survivors keep their processes, and each node fetches the checkpoint once."""
    job_id = empty_stack.submit(stored_job(store, parallelism={"strategy": "fsdp"}, resources={"nodes": 2, "slots_per_node": 2}))
    wait_until("a checkpoint, or the job's end", lambda: committed(empty_stack, job_id), PATIENCE)
    before = {rank["rank"]: rank["pid"] for rank in empty_stack.job(job_id)["ranks"]}
    store.seen.clear()
    os.kill(before[3], signal.SIGKILL)

    done = empty_stack.wait_for_state(job_id, "completed", "failed", timeout=PATIENCE)
    assert (done["state"], done["generation"]) == ("completed", 2), done
    after = {rank["rank"]: rank["pid"] for rank in done["ranks"]}
    assert {rank for rank in before if after[rank] == before[rank]} == {0, 1, 2}
    (incident,) = empty_stack.get(f"/training/jobs/{job_id}/incidents")
    assert (incident["action"], incident["survivors"], incident["new_size"]) == ("fell_back", [0, 1, 2], 4), incident
    assert (incident["resumed_step"] >= EVERY, incident["resumed_step"] % EVERY) == (True, 0)
    asked = fetches(store, f"/runs/{job_id}/step-{incident['resumed_step']}.g1/")
    parts = {path: count for path, count in asked.items() if path.endswith(".distcp")}
    assert (len(parts), set(parts.values())) == (4, {2}), asked
    assert {step for step, _ in empty_stack.raw_curve(job_id)} == set(range(1, STEPS + 1))
