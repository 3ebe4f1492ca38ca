"""From text to a trained job, as a user goes: token files by the command line, a job that names them, an audit of its samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(480)]
PATIENCE = 200


def test_text_becomes_token_files_and_a_job_trains_on_them(stack: Stack, tmp_path: Path) -> None:
    done = stack.paceline("data", "tokenize", str(ROOT / "training"), "--match", "*.py", "--output", str(tmp_path / "tokens"), "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    spec = tiny_gpt("tokens", 30)
    spec["model"] |= {"vocab_size": made["vocabulary"]}
    spec["data"] = {"kind": "tokens", "path": made["folder"], "sha256": made["sha256"], "holdout": 0.2}
    spec["training"] |= {"data_workers": 1, "eval_every_steps": 10, "eval_samples": 8}
    job_id = stack.submit(spec)
    job = stack.wait_for_state(job_id, "completed", "failed", timeout=PATIENCE)
    assert job["state"] == "completed", job
    losses = [loss for _, loss in stack.raw_curve(job_id)]
    assert (len(losses), losses[-1] < losses[0]) == (30, True)
    assert len(stack.raw_curve(job_id, "eval_loss")) == 3
    audit = stack.get(f"/training/jobs/{job_id}/samples")
    assert (audit["exactly_once"], audit["samples"]) == (True, 30 * 8)


def test_a_node_without_the_files_fails_the_job_and_says_what_to_do(stack: Stack, tmp_path: Path) -> None:
    spec = tiny_gpt("nowhere", 30, nodes=1) | {"data": {"kind": "tokens", "path": str(tmp_path / "nowhere")}}
    job_id = stack.submit(spec)
    job = stack.wait_for_state(job_id, "completed", "failed", timeout=PATIENCE)
    assert (job["state"], job["end_reason"]) == ("failed", "invalid_input")
    assert "paceline data tokenize" in job["failure"]["message"]
