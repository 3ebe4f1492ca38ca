"""The examples must be valid jobs and experiments, and small enough for the machine they are for."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from paceline.cli.examples import FIRST_SPEC
from paceline.cli.local.local_agents import shape
from paceline.cluster.experiments.grid import expand
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.cluster.policy.placement import Placement, QueuedGang, Request, place
from paceline.cluster.policy.room import NodeView
from paceline.monitoring.samples import Gpu
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


#: What they show takes two slots (`gpt_auto`: two of 104 MiB), and of one two machines.
NOT_ON_ONE_SLOT = {"digits_parameter_server", "gpt_auto", "gpt_object_store", "gpt_pipeline", "gpt_tensor"}


def placed(path: Path, cards: int) -> Placement | QueuedGang:
    """What becomes of an example on a machine with so many GPUs, after a plain `paceline up`."""
    spec, gpus = (
        load(path.read_text()),
        [Gpu(index=index, uuid=f"GPU-{index}", name="H100", memory_bytes=80 << 30) for index in range(cards)],
    )
    resources, local = JobSpec.model_validate(spec).resources, shape(None, None, gpus)
    slots = local.slots_per_agent or cards
    nodes = [NodeView(f"n{each}", f"n{each}", "cuda" if cards else "cpu", slots, tuple(range(slots)), True) for each in range(local.agents)]
    request = Request(
        "job",
        resources.blocks,
        resources.slots_per_block,
        50,
        datetime(2026, 1, 1, tzinfo=UTC),
        min_blocks=resources.min_blocks,
        plan=JobSpec.model_validate(spec).parallelism,
        spread=resources.spread,
    )
    (verdict,) = place([request], nodes)
    return verdict


@pytest.mark.parametrize("cards", [0, 1, 2, 8])
def test_the_first_example_starts_on_every_machine(cards: int) -> None:
    """It is what `paceline up` names as the next command."""
    verdict = placed(FOLDER / FIRST_SPEC, cards)
    assert isinstance(verdict, Placement), verdict
    assert verdict.slots == (1 if cards == 1 else 2)


def test_the_examples_start_on_a_machine_with_one_gpu() -> None:
    waiting = {path.stem for path in EXAMPLES if isinstance(placed(path, 1), QueuedGang)}
    assert waiting == NOT_ON_ONE_SLOT


def test_an_example_that_needs_two_slots_says_what_to_do_with_one_gpu() -> None:
    silent = [name for name in NOT_ON_ONE_SLOT - {"gpt_object_store"} if "--gpus none" not in (FOLDER / f"{name}.yaml").read_text()]
    assert silent == []


def test_no_example_names_a_folder_that_only_its_author_has() -> None:
    """Those with code beside them named one, and were refused on every machine."""
    named = {path.stem for path in EXAMPLES if "working_directory" in (load(path.read_text()).get("environment") or {})}
    assert named == set()


def test_no_example_names_data_that_only_its_author_has() -> None:
    """`gpt_tokens` says how to make them; of `cifar10_resnet` each node fetches its own."""
    named = {path.stem for path in EXAMPLES if "path" in (load(path.read_text()).get("data") or {})}
    assert named == {"gpt_tokens"}


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


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_imports_of_paceline_what_users_import(path: Path) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    ours = {module for module in modules if module is not None and module.partition(".")[0] == "paceline"}
    assert ours == {"paceline"}
