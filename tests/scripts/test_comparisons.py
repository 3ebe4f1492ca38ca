"""The benchmark scripts: the experiments that they post, and what does not fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.training.spec.job import JobSpec
from scripts.bench.experiments import PARTS
from scripts.bench.parts import Part
from scripts.comparisons.grids import PLANS, Length, benchmark, distributed_suite, fitting, job
from scripts.steps import ROOT

LENGTH = Length(steps=20, repeats=2)


def grid(**changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"gpus": [1, 2, 4], "strategies": ["ddp", "fsdp"], "batch_sizes": [32, 64], "scaling": "weak", **changes}
    return benchmark("benchmark", job("resnet", LENGTH, on_gpus=False), LENGTH, **options)


@pytest.mark.parametrize("on_gpus", [False, True])
@pytest.mark.parametrize("model", ["resnet", "gpt"])
def test_what_is_posted_is_an_experiment_of_valid_jobs(model: str, on_gpus: bool) -> None:
    base = job(model, LENGTH, on_gpus=on_gpus, precision="bf16")
    JobSpec.model_validate({"name": "one", **base})
    for document in (
        benchmark("b", base, LENGTH, gpus=[1, 2], strategies=["ddp"], batch_sizes=[32], scaling="strong"),
        distributed_suite("s", base, LENGTH, world_sizes=[2], batch_size=16),
    ):
        spec = ExperimentSpec.model_validate(document)
        assert (spec.repeats, spec.at_once) == (2, 1)


@pytest.mark.parametrize(("scaling", "shares"), [("weak", [32, 64]), ("strong", [8, 16])])
def test_micro_batches_are_as_large_on_every_number_of_ranks(scaling: str, shares: list[int]) -> None:
    (columns,) = grid(scaling=scaling)["zip"]
    assert columns == {"training.global_batch_size": [32, 64], "training.micro_batch_size": shares}


def test_every_plan_of_the_suite_runs_beside_one_process() -> None:
    suite = distributed_suite("s", job("gpt", LENGTH, on_gpus=False), LENGTH, world_sizes=[2, 4], batch_size=16)
    assert suite["baseline"]
    assert {len(values) for values in PLANS.values()} == {4}
    for values in zip(*PLANS.values(), strict=True):
        plan = {path.partition(".")[2]: value for path, value in zip(PLANS, values, strict=True)}
        JobSpec.model_validate({"name": "one", **suite["job"], "resources": {"slots": 2}, "parallelism": plan})


def test_numbers_of_ranks_without_slots_are_rows_with_the_reason() -> None:
    document, unfit = fitting(grid(), 2)
    assert document["world_sizes"] == [1, 2]
    assert [(row.ranks, row.why) for row in unfit] == [(4, "needs 4 slots, and there are 2")]
    assert fitting(grid(), 0)[0]["world_sizes"] == []


@pytest.mark.parametrize("script", ["run_benchmark.py", "run_distributed_benchmarks.py"])
def test_a_wrong_number_is_refused_before_anything_starts(script: str, tmp_path: Path) -> None:
    option = "--gpus" if script == "run_benchmark.py" else "--world-sizes"
    command = [sys.executable, str(ROOT / "scripts" / script), option, "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "'0' is no whole number of at least 1" in done.stderr) == (2, True)


def test_every_part_of_the_benchmark_is_a_module() -> None:
    assert {"overhead", "analyze"} <= set(PARTS)
    for part in PARTS.values():
        assert isinstance(part, Part)
        assert (ROOT / (part.module.replace(".", "/") + ".py")).is_file()
