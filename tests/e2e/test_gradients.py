"""Gradients of a running job's next step, from a command and a page to real ranks and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, expect

from tests.e2e.axe import findings
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def job_id(stack: Stack) -> str:
    job_id = stack.submit(tiny_gpt("watched", 1_000_000, parallelism={"strategy": "ddp"}))
    stack.wait_for_step(job_id, 2)
    return job_id


def test_a_running_job_is_asked_by_a_command_and_by_its_page(stack: Stack, page: Page, job_id: str, tmp_path: Path) -> None:
    access = ("--server", stack.server, "--api-key", stack.api_key)
    done = stack.paceline(
        "gradients", job_id, "--next", "--names", "*_norm.weight", "--snapshots", "--into", str(tmp_path), "--json", *access
    )
    assert done.returncode == 0, done.stderr
    files = [Path(file) for file in json.loads(done.stdout)["files"]]
    kept = [torch.load(file, weights_only=True) for file in files]
    asked: dict[str, Any] = stack.get(f"/training/jobs/{job_id}/gradients")["request"]
    assert [file.name for file in files] == [f"step{asked['step']}-rank{rank}.pt" for rank in (0, 1)]
    assert (asked["state"], asked["ranks"], asked["answered"]) == ("done", 2, 2)
    found = stack.get(f"/training/jobs/{job_id}/gradients/{asked['step']}")["parameters"]
    assert found
    for parameter in found:
        assert parameter["name"].endswith("_norm.weight")
        for rank, tensors in zip(parameter["ranks"], kept, strict=True):
            assert rank["norm"] == pytest.approx(tensors[parameter["name"]].norm().item(), rel=1e-4)
    assert not kept[0][found[0]["name"]].equal(kept[1][found[0]["name"]]), "each rank's own, not the mean"

    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    page.goto(f"{stack.server}/jobs/{job_id}?tab=performance")
    panel = page.get_by_role("region", name="Gradients")
    expect(panel.get_by_text(f"Step {asked['step']:,}: {len(found)} parameters on 2 ranks")).to_be_visible(timeout=60_000)
    panel.get_by_label("Parameters").fill("*.query.weight")
    panel.get_by_role("button", name="Record the next step").click()
    table = panel.get_by_role("table", name="Gradients by parameter")
    expect(table.get_by_text("query.weight").first).to_be_visible(timeout=60_000)
    expect(table.get_by_text("_norm.weight")).to_have_count(0)
    assert findings(page) == []
