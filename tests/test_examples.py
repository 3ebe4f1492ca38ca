"""The examples must be valid jobs and experiments, and small enough for the machine they are for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paceline.cluster.experiments.grid import expand
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.training.models.catalog import parameter_count
from paceline.training.spec.job import JobSpec
from paceline.training.spec.text import load

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES, EXPERIMENTS = sorted(FOLDER.glob("*.yaml")), sorted((FOLDER / "experiments").glob("*.yaml"))


def test_the_examples_are_there() -> None:
    assert {
        "gpt_stdlib",
        "gpt_fsdp",
        "gpt_tensor",
        "gpt_auto",
        "gpt_pipeline",
        "gpt_tokens",
        "digits_mlp",
        "mnist_mlp",
        "cifar10_resnet",
        "hf_llama",
        "digits_entrypoint",
        "own_loop",
    } <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_valid_job(path: Path) -> None:
    spec = JobSpec.model_validate(yaml.safe_load(path.read_text()))
    assert spec.name == path.stem.replace("_", "-")
    if spec.script is not None:
        assert spec.script.path is None or path.with_name(spec.script.path).exists()
    elif spec.model is None:
        module, _ = str(spec.entrypoint).split(":")
        assert path.with_name(f"{module}.py").exists()
    else:
        assert 0 < (parameter_count(spec.model, spec.data) or 0) < 5_000_000


def test_the_experiments_are_there() -> None:
    assert [path.stem for path in EXPERIMENTS] == ["ddp_vs_fsdp", "mnist_twins", "scaling_gpt", "sweep_lr"]


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_is_valid_and_runs_on_two_slots(path: Path) -> None:
    spec = ExperimentSpec.model_validate(load(path.read_text()))
    assert spec.name == path.stem.replace("_", "-")
    cells = expand(spec).cells
    assert [cell.refusal for cell in cells] == [None] * len(cells)
    assert 1 <= max(cell.world_size for cell in cells) <= 2
    base = JobSpec.model_validate({**spec.job, "name": spec.name})
    assert base.model is not None
    assert 0 < (parameter_count(base.model, base.data) or 0) < 5_000_000
