"""Scripts that are ended on purpose and go on later, with real processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

#: Counts up, and goes on from what it has saved at SIGTERM.
COUNTER = """
import os
import signal
import sys
import time
from pathlib import Path

saved = Path(f"saved.{os.environ['RANK']}")
count = int(saved.read_text()) if saved.exists() else 0


def save(*_):
    saved.write_text(str(count))
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
print("from", count, "world", os.environ["WORLD_SIZE"], "restarts", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
while True:
    time.sleep(0.01)
    count += 1
"""


@pytest.fixture(scope="module")
def stack(own_stack: Stack) -> Stack:
    return own_stack


def counter(folder: Path, **changes: Any) -> dict[str, Any]:
    (folder / "counter.py").write_text(COUNTER)
    script = {"path": "counter.py", **changes.pop("script", {})}
    return {"name": "counter", "script": script, "environment": {"working_directory": str(folder)}, **changes}


def lines(stack: Stack, job_id: str) -> list[str]:
    return [line["text"] for line in stack.get(f"/training/jobs/{job_id}/logs", limit=1000)["items"]]


def test_a_script_saves_at_its_time_limit(stack: Stack, tmp_path: Path) -> None:
    job = stack.wait_for_state(stack.submit(counter(tmp_path, time_limit=3)), "failed", timeout=60)
    assert (job["end_reason"], job["failure"], job["restarts"]) == ("time_limit", None, 0)
    assert 3.0 <= job["ran_seconds"] < 30.0
    assert int((tmp_path / "saved.0").read_text()) > 0


def test_a_script_that_saves_at_sigterm_is_paused_and_goes_on_from_there(stack: Stack, tmp_path: Path) -> None:
    job_id = stack.submit(counter(tmp_path, script={"saves_on_sigterm": True}, resources={"nodes": 2}))
    wait_until("both count", lambda: lines(stack, job_id).count("from 0 world 2 restarts 0") == 2, 60)
    stack.change("PUT", job_id, "pause")
    job = stack.wait_for_state(job_id, "paused")
    assert (job["failure"], job["restarts"]) == (None, 0)
    saved = [int((tmp_path / f"saved.{rank}").read_text()) for rank in range(2)]
    assert min(saved) > 0
    stack.change("PUT", job_id, "resume")
    expected = sorted(f"from {count} world 2 restarts 0" for count in saved)
    wait_until("both go on", lambda: sorted(lines(stack, job_id)[2:]) == expected, 60)
    assert stack.wait_for_state(job_id, "running")["generation"] == 2
    stack.change("DELETE", job_id)
    stack.wait_for_state(job_id, "cancelled")


def test_a_script_that_does_not_end_in_time_is_paused_and_its_history_says_so(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(600)\n"
    )
    script = {"path": "deaf.py", "saves_on_sigterm": True, "grace_seconds": 1}
    job_id = stack.submit({"name": "deaf", "script": script, "environment": {"working_directory": str(tmp_path)}})
    wait_until("it runs", lambda: "deaf" in lines(stack, job_id), 60)
    stack.change("PUT", job_id, "pause")
    stack.wait_for_state(job_id, "paused")
    causes = [event["cause"] for event in stack.get(f"/training/jobs/{job_id}/events", limit=100)["items"]]
    assert "rank 0: did not end within 1 s of SIGTERM, and was killed; what had not been saved may be lost" in causes


#: Its ranks meet, and talk to each other until they are ended.
TALKER = """
import os
import signal
import time

import torch
import torch.distributed as dist

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
dist.init_process_group("gloo")
names = "RANK WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE TORCHELASTIC_RESTART_COUNT"
print(*[os.environ[name] for name in names.split()], flush=True)
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
"""


def said(stack: Stack, job_id: str) -> list[str]:
    """What TALKER has printed; a rank may also print that it lost its peer, which was told to end a moment before it."""
    return [line for line in lines(stack, job_id) if re.fullmatch(r"\d( \d){4}", line)]


def test_an_elastic_script_follows_its_nodes(stack: Stack, tmp_path: Path) -> None:
    """It starts on the one node that there is, grows to both, and goes on alone when the other one is drained."""
    (tmp_path / "talker.py").write_text(TALKER)
    nodes = {node["name"]: f"/cluster/nodes/{node['id']}" for node in stack.get("/cluster/nodes")["items"] if node["state"] == "ready"}
    stack.client.put(f"{nodes['local-2']}/cordon").raise_for_status()
    spec = {"script": {"path": "talker.py"}, "resources": {"nodes": 2, "min_nodes": 1}, "fault_tolerance": {"max_restarts": 0}}
    job_id = stack.submit(spec | {"name": "talker", "environment": {"working_directory": str(tmp_path)}})
    wait_until("it talks alone", lambda: said(stack, job_id) == ["0 1 1 1 0"], 60)
    stack.client.put(f"{nodes['local-2']}/uncordon").raise_for_status()
    wait_until("both talk", lambda: sorted(said(stack, job_id)[1:]) == ["0 2 2 2 0", "1 2 2 2 0"], 90)
    stack.client.delete(nodes["local-2"]).raise_for_status()
    wait_until("it talks alone again", lambda: said(stack, job_id)[3:] == ["0 1 1 1 0"], 60)
    job = stack.wait_for_state(job_id, "running")
    assert (job["generation"], job["restarts"], [rank["node_name"] for rank in job["ranks"]]) == (3, 0, ["local-1"])
    stack.change("DELETE", job_id)
    stack.wait_for_state(job_id, "cancelled")
