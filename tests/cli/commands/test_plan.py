"""`paceline plan`: what a job would do, in words."""

from __future__ import annotations

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator

SPEC = "name: gpt\ntraining: {steps: 10}\n"


def test_plan_is_asked_and_nothing_is_submitted(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answer = {
        "plan_hash": "h1",
        "world_size": 2,
        "strategy": "ddp",
        "placement": None,
        "pending": {"code": "full", "text": "2 slots missing"},
    }
    coordinator.on("POST", "/training/plan", Answer(200, answer))
    done = paceline("plan", "-", "--set", "labels.team=my team", stdin=SPEC)
    assert done.returncode == 0, done.stderr
    assert "2 slots missing" in done.stdout
    assert "paceline submit - '--set=labels.team=my team' --plan-hash h1" in done.stderr  # what was planned
    assert not coordinator.sent("POST", "/training/jobs")


def test_a_plan_is_of_the_packages_that_submit_will_send(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """It was of the file's name, so that the command it suggests was always refused."""
    (paceline.folder / "requirements.txt").write_text("numpy\n")
    (paceline.folder / "job.yaml").write_text(f"{SPEC}environment: {{requirements: requirements.txt}}\n")
    coordinator.on("POST", "/training/plan", Answer(200, {"plan_hash": "h1", "world_size": 2, "strategy": "ddp"}))
    assert paceline("plan", "job.yaml").returncode == 0
    assert coordinator.sent("POST", "/training/plan")[0].body["environment"] == {"requirements": ["numpy"]}


def test_plan_of_what_fits_nowhere_does_not_suggest_to_submit_it(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    pending = {"code": "cluster_too_small", "text": "needs 1 node with 9 slots", "next_step": "add nodes"}
    answer = {"plan_hash": "h1", "world_size": 9, "strategy": "ddp", "placement": None, "pending": pending}
    coordinator.on("POST", "/training/plan", Answer(200, answer))
    done = paceline("plan", "-", stdin=SPEC)
    assert (done.returncode, done.stderr) == (0, "")
    assert "add nodes" in done.stdout


def test_plan_tells_memory_by_part(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    memory = {"parameters": 4000, "gradients": 8000, "optimizer": 8000, "activations": 500_000, "buffers": 0, "total": 520_000}
    words = {"moment": "in the backward of the loss", "made_from": "micro-batches of 4 samples in fp32"}
    coordinator.on(
        "POST", "/training/plan", Answer(200, {"plan_hash": "h1", "world_size": 1, "strategy": "single", "memory_per_rank": memory | words})
    )
    done = paceline("plan", "-", stdin=SPEC)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    assert rows["memory"].strip() == "507.8 KiB a rank in the backward of the loss"
    assert rows["of which"].strip() == "activations 488.3 KiB, parameters 3.9 KiB, gradients 7.8 KiB, optimizer 7.8 KiB"
    assert rows["estimated"].strip() == "from micro-batches of 4 samples in fp32"


def test_plan_tells_what_was_chosen_and_what_became_of_the_other_plans(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    option = {"name": "shard 2, micro-batches of 4", "memory_bytes": 3_000_000, "step_seconds": 0.0412}
    larger = {"name": "replicate 2, micro-batches of 4", "memory_bytes": 5_000_000, "step_seconds": 0.03, "why": "needs 4.8 MiB"}
    choice = {"asked": ["parallelism.strategy: auto"], "why": "Shard 2: it fits.", "assumed": "assumed: links", "budget_bytes": 4_000_000}
    choice |= {"chosen": option, "rejected": [larger], "not_told": 3}
    coordinator.on("POST", "/training/plan", Answer(200, {"plan_hash": "h1", "world_size": 2, "strategy": "fsdp", "choice": choice}))
    done = paceline("plan", "-", stdin=SPEC)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    assert (rows["asked for"].strip(), rows["chosen"].strip()) == ("parallelism.strategy: auto", "Shard 2: it fits.")
    table = done.stdout.split("\n\n")[1].splitlines()
    assert [line.split("  ")[0] for line in table] == ["PLAN", option["name"], larger["name"], "and 3 more"]
    assert table[2].endswith("4.8 MiB        0.03 s    needs 4.8 MiB")


def test_plan_tells_what_each_stage_of_a_pipeline_has(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    stages = [{"place": 0, "layers": "the embedding, blocks 0 to 2"}, {"place": 1, "layers": "block 3, the head, the loss"}]
    answer = {"plan_hash": "h1", "world_size": 2, "strategy": "ddp, pipeline 2", "stages": stages}
    coordinator.on("POST", "/training/plan", Answer(200, answer))
    rows = dict(line.split("  ", 1) for line in paceline("plan", "-", stdin=SPEC).stdout.splitlines() if "  " in line)
    assert rows["stage 0"].strip() == "the embedding, blocks 0 to 2 (place 0)"
    assert rows["stage 1"].strip() == "block 3, the head, the loss (place 1)"
