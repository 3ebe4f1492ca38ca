"""The examples must be valid jobs, and small enough for the machine they are for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paceline.training.models.catalog import parameter_count
from paceline.training.spec.job import JobSpec

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.yaml"))


def test_the_examples_are_there() -> None:
    assert {
        "gpt_stdlib",
        "gpt_fsdp",
        "gpt_tensor",
        "gpt_auto",
        "gpt_pipeline",
        "gpt_tokens",
        "digits_mlp",
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
        assert path.with_name(spec.script.path).exists()
    elif spec.model is None:
        module, _ = str(spec.entrypoint).split(":")
        assert path.with_name(f"{module}.py").exists()
    else:
        assert 0 < (parameter_count(spec.model, spec.data) or 0) < 5_000_000
