"""The examples on the smallest machine there is, one slot, as they are but for their length: what `paceline up` and the pages name as the next command."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
EXAMPLES = ROOT / "examples"
STEPS = 4


@pytest.fixture(scope="module")
def stack(empty_stack: Stack) -> Stack:
    empty_stack.up(free_port(), agents=1)
    wait_until("its node is ready", lambda: len(empty_stack.get("/cluster/nodes", status="ready")["items"]) == 1, 60)
    return empty_stack


def shortened(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    if "training" in spec:
        length = {key: value for key, value in spec["training"].items() if key != "epochs"}
        spec["training"] = length | {"steps": STEPS, "eval_every_steps": None, "generate_tokens": 0}
        spec["schedule"] = {"kind": "constant"}
    if "entrypoint" in spec:  # as `paceline submit` finds it, beside the spec
        spec["environment"] = {"working_directory": str(EXAMPLES)}
    return spec


@pytest.mark.parametrize("name", ["gpt_stdlib", "gpt_fsdp", "gpt_compressed", "digits_mlp", "digits_entrypoint"])
def test_an_example_trains_on_one_slot(name: str, stack: Stack) -> None:
    job = stack.wait_for_state(stack.submit(shortened(name)), "completed", "failed", timeout=120)
    assert job["state"] == "completed", job["failure"]
    assert len(job["ranks"]) == 1
    assert job["progress"]["step"] == STEPS
