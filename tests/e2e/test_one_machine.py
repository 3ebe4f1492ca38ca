"""One machine with GPUs, which are made up here: one agent offers them all, each rank of a script finds its own, and a second stack takes none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import taken_down
from tests.nvml import FakeMachine
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SHOW = """
import os
cards = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
print("own card", cards[int(os.environ["LOCAL_RANK"])], "of", len(cards))
"""


def test_one_machine_with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine").mkdir()
    machine = FakeMachine(tmp_path / "machine", cards=2)
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "show.py").write_text(SHOW)
    with taken_down(tmp_path / "first") as stack, taken_down(tmp_path / "second") as other:
        stack.bring_up("--port", str(free_port()))
        (node,) = stack.get("/cluster/nodes")["items"]
        assert (node["device"], len(node["slots"]), node["state"]) == ("cuda", 2, "ready")
        assert [gpu["uuid"] for gpu in node["gpus"]] == list(machine.uuids)

        spec = {"name": "show", "resources": {"nodes": 1, "slots_per_node": 2}, "script": {"path": str(tmp_path / "show.py")}}
        job = stack.submit(spec)
        assert stack.wait_for_state(job, "completed", "failed")["state"] == "completed", stack.logs()
        lines = {(line["rank"], line["text"]) for line in stack.get(f"/training/jobs/{job}/logs")["items"]}
        assert {(rank, f"own card {machine.uuids[rank]} of 2") for rank in range(2)} <= lines

        refused = other.paceline("up", "--port", str(free_port()), "--data", str(other.data))
        assert refused.returncode == 1
        assert "GPU 0 and GPU 1 (NVIDIA Test 80GB) are offered by the agent local-1 (process " in refused.stderr
        assert f"data folder {stack.data}/agents/local-1) already" in refused.stderr
        other.bring_up("--gpus", "none", "--agents", "1")
        (beside,) = other.get("/cluster/nodes")["items"]
        assert (beside["device"], len(beside["slots"]), beside["gpu_note"]) == ("cpu", 1, "no GPU is offered: --gpus none")
