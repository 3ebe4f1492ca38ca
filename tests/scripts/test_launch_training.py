"""`scripts/launch_training.sh`: what it starts, on one machine and on two, and what it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.own_loop_example import ROOT, RUN_TIMEOUT_SECONDS, Curve, curve_in, environment, run_plainly
from tests.ports import free_port

pytestmark = pytest.mark.timeout(300)

LAUNCH = str(ROOT / "scripts" / "launch_training.sh")
STEPS = ("--steps", "8")
RELATIVE = 1e-5


@pytest.fixture(scope="module")
def alone() -> Curve:
    """One process, with as many images in a batch as two ranks have together."""
    return run_plainly("--batch-size", "64", *STEPS)


def assert_same(found: Curve, expected: Curve) -> None:
    assert found.keys() == expected.keys() == set(range(1, 9))
    for step, values in expected.items():
        assert found[step] == pytest.approx(values, rel=RELATIVE, abs=1e-5)  # norms are printed to five digits


def launch(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAUNCH, *arguments], env=environment(**variables), capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False
    )


@pytest.mark.slow("torchrun and its ranks import torch anew")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_under_torchrun_train_as_one_process_does(strategy: str, alone: Curve, tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "own_loop.py")
    done = launch("2", strategy, "32", example, *STEPS, "--checkpoint-dir", str(tmp_path), "--save-every", "4")
    assert done.returncode == 0, done.stderr
    assert_same(curve_in(done.stdout), alone)
    assert {path.name for path in tmp_path.glob("step-*")} == {"step-4.g1", "step-8.g1"}
    resumed = run_plainly("--batch-size", "64", "--steps", "10", "--checkpoint-dir", str(tmp_path))
    assert sorted(resumed) == [9, 10], "it did not go on where the two ranks stopped"


@pytest.mark.slow("torchrun and its ranks import torch anew, twice")
@pytest.mark.parametrize(("gpus", "told"), [("1", {"NNODES": "2"}), ("2", {"GPUS_PER_NODE": "1"})])
def test_two_machines_meet_at_the_address_they_are_told(gpus: str, told: dict[str, str], alone: Curve) -> None:
    meeting = told | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [LAUNCH, gpus, "fsdp", "32", str(ROOT / "examples" / "own_loop.py"), *STEPS]
    nodes = [
        subprocess.Popen(
            command, env=environment(**meeting, NODE_RANK=str(node)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for node in range(2)
    ]
    try:
        ends = [node.communicate(timeout=RUN_TIMEOUT_SECONDS) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], ends
    assert_same(curve_in(ends[0][0]), alone)
    assert curve_in(ends[1][0]) == {}


@pytest.mark.parametrize(
    ("arguments", "variables", "problem"),
    [
        ("two ddp 32", {}, "GPUS=two is not a whole number; give the ranks"),
        ("0 ddp 32", {}, "GPUS=0 is less than 1"),
        ("2 ddp 08", {}, "BATCH=08 is not a whole number"),
        ("2 horovod 32", {}, "STRATEGY=horovod is not known; use single, ddp, fsdp or auto"),
        ("2 single 32", {}, "STRATEGY=single is one process, not 2"),
        ("2 ddp 32 none.py", {}, "SCRIPT=none.py does not exist"),
        ("2 ddp 32", {"NNODES": "2"}, "NNODES=2 but MASTER_ADDR is not set"),
        ("2 ddp 32", {"NNODES": "2", "NODE_RANK": "2"}, "NODE_RANK=2 is none of NNODES=2 machines; number them from 0 to 1"),
        ("16 ddp 32", {"NODE_RANK": "1"}, "NODE_RANK=1 but MASTER_ADDR is not set"),
        ("16 ddp 32", {"MASTER_ADDR": "node0"}, "MASTER_ADDR=node0 but neither NNODES nor NODE_RANK is set"),
        ("16 ddp 32", {"MASTER_ADDR": "node0", "NODE_RANK": "0", "CUDA_VISIBLE_DEVICES": ""}, "this machine has no GPU to tell"),
        ("6 ddp 32", {"MASTER_ADDR": "node0", "NODE_RANK": "0", "GPUS_PER_NODE": "4"}, "cannot be shared out with 4 on each"),
        ("8 ddp 32", {"MASTER_ADDR": "node0", "NODE_RANK": "0", "GPUS_PER_NODE": "8"}, "GPUS=8 are all on this machine, which has 8"),
        (
            "8 ddp 32",
            {"MASTER_ADDR": "node0", "NODE_RANK": "1", "GPUS_PER_NODE": "8"},
            "give the GPUs of all machines together, or set NNODES",
        ),
        ("2 ddp 32", {"MASTER_PORT": "70000"}, "MASTER_PORT=70000 is more than 65535"),
        ("2 ddp 32", {"PYTHON": "/none/python"}, "PYTHON=/none/python is not there; run scripts/setup"),
    ],
)
def test_what_cannot_be_started_is_refused_with_the_way_out(arguments: str, variables: dict[str, str], problem: str) -> None:
    done = launch(*arguments.split(), **variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert problem in done.stderr


def test_with_too_few_arguments_it_says_how_it_is_used() -> None:
    done = launch("2", "ddp")
    assert done.returncode == 2
    assert "launch_training.sh GPUS STRATEGY BATCH [SCRIPT [ARGS...]]" in done.stderr
