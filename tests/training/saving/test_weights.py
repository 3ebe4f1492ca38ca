"""A model goes out as safetensors and comes back, to the last bit, whatever plan it is cut by; what does not fit is refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism import mesh
from paceline.parallelism.apply import parallelize
from paceline.parallelism.plan import Coordinates, assign_evenly
from paceline.parallelism.wrapped import SingleProcess
from paceline.training.build import choices_of
from paceline.training.errors import CheckpointCorruptError, InvalidInputError, WeightsExistError
from paceline.training.link import Broken, RankPlace
from paceline.training.saving import checkpoint, export, weights
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import CheckpointDirectory
from paceline.training.saving.storage import FolderStorage
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state, rebuild_optimizer
from paceline.training.steps.step import LocalStepRunner
from tests.faults import Fault, faulty_job
from tests.parallelism.parity import NothingAsked
from tests.ranks import run_ranks
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt, tiny_resnet, write_batches

CPU = torch.device("cpu")
PLANS: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    "ddp on 2": (2, {"strategy": "ddp"}),
    "fsdp on 2": (2, {"strategy": "fsdp"}),
    "2 x 2": (4, {"strategy": "fsdp", "replicate": 2}),
}


def under(plan: str, seed: int) -> dict[str, Any]:
    world_size, parallelism = PLANS[plan]
    return tiny_gpt(world_size, seed=seed) | {"parallelism": parallelism, "reproducible": False}


def saved(world: RankPlace, plan: str, seed: int, source: str | None, folder: str) -> str:
    """A new model, or one with the weights at `source`, saved; its fingerprint."""
    spec = JobSpec.model_validate(under(plan, seed))
    state, sizes = new_state(spec, CPU, env.cache_directory()), spec.parallelism.degrees(world.world_size)
    group = join(world, GroupAborter(), mesh.axis_group_ranks(sizes))
    parallelize(state.task.model, sizes, CPU, group, reproducible=False, choices=choices_of(spec))
    rebuild_optimizer(state, spec)
    if source is not None:
        weights.load_initial(state.model, Path(source), group)
    state.step = 1
    return (
        checkpoint.save(CheckpointDirectory(FolderStorage(Path(folder)), "job", 1, spec, group), state, {}).manifest.parameters_sha256 or ""
    )


def checkpoint_of(folder: Path, plan: str, seed: int) -> tuple[Path, str]:
    folder.mkdir()
    fingerprint = run_ranks(saved, PLANS[plan][0], plan, seed, None, str(folder))[0]
    return folder / "step-1.g1", fingerprint


@pytest.mark.parametrize("source", ["single", "fsdp on 2"])
@pytest.mark.parametrize("limit", [export.LIMIT, 4000])
def test_out_and_in_again_every_bit_is_the_same_under_any_plan(tmp_path: Path, source: str, limit: int) -> None:
    found, fingerprint = checkpoint_of(tmp_path / "source", source, seed=1)
    exported = export.export(found, tmp_path / "out", limit)
    assert exported.parameters_sha256 == fingerprint
    assert (len(exported.files) > 1) == (limit == 4000)
    for number, plan in enumerate(PLANS):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert set(run_ranks(saved, PLANS[plan][0], plan, 2, exported.folder, str(folder))) == {fingerprint}
    (tmp_path / "other").mkdir()
    assert set(run_ranks(saved, 1, "single", 2, None, str(tmp_path / "other"))) != {fingerprint}, "seed 2 alone gives the same"


def test_it_is_laid_out_as_hugging_face_does(tmp_path: Path) -> None:
    found, fingerprint = checkpoint_of(tmp_path / "source", "single", seed=1)
    whole = load_file(Path(export.export(found, tmp_path / "whole").folder) / "model.safetensors")
    parts = Path(export.export(found, tmp_path / "parts", limit=4000).folder)
    index = json.loads((parts / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in parts.glob("*.safetensors"))
    assert files == [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in whole.values())
    assert index["weight_map"].keys() == whole.keys()
    for name, file in index["weight_map"].items():
        assert torch.equal(load_file(parts / file)[name], whole[name])
    assert "head.weight" not in whole or "embedding.weight" not in whole, "a tied tensor is there twice"
    with safe_open(tmp_path / "whole" / "model.safetensors", framework="pt") as file:
        notes = file.metadata()
    assert notes["format"] == "pt"
    assert (notes["step"], notes["parameters_sha256"]) == ("1", fingerprint)
    assert notes["spec_sha256"] == manifests.read(found).spec_sha256


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 20), max_size=12), st.integers(1, 30))
def test_runs_hold_every_name_once_in_order_and_keep_to_the_limit(sizes: dict[str, int], limit: int) -> None:
    runs = weights.cut(sizes, limit)
    assert [name for run in runs for name in run] == list(sizes)
    assert all(len(run) == 1 or sum(sizes[name] for name in run) <= limit for run in runs)


def test_types_and_running_statistics_are_kept(tmp_path: Path) -> None:
    write_batches(tmp_path)
    spec = JobSpec.model_validate(tiny_resnet(tmp_path))
    state = new_state(spec, CPU, tmp_path)
    state.model.half()
    state.step = 1
    source = checkpoint.save(CheckpointDirectory(FolderStorage(tmp_path), "job", 1, spec, SoloGroup()), state, {})
    assert isinstance(source.directory, Path)
    path = Path(export.export(source.directory, tmp_path / "out").folder)
    found = weights.find_weights(path)
    for name, tensor in state.model.state_dict().items():
        assert found.read(name).dtype == tensor.dtype
        assert torch.equal(found.read(name), tensor)
    assert {found.read(name).dtype for name in found.files} == {torch.float16, torch.int64}


def test_transformers_read_what_was_exported_from_their_model(tmp_path: Path) -> None:
    """And their own files start a job: the names are theirs."""
    transformers = pytest.importorskip("transformers")
    from paceline.training.models.hf import model as hf
    from paceline.training.models.hf.config import HfModel

    config = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config |= {"vocab_size": 256, "tie_word_embeddings": True}
    model = {"kind": "hf", "config": config, "context": 16}
    spec = JobSpec.model_validate(tiny_gpt() | {"model": model})
    state = new_state(spec, CPU, tmp_path)
    state.step = 1
    source = checkpoint.save(CheckpointDirectory(FolderStorage(tmp_path), "job", 1, spec, SoloGroup()), state, {})
    assert isinstance(source.directory, Path)
    export.export(source.directory, tmp_path / "out")
    state.model.config.save_pretrained(tmp_path / "out")  # type: ignore[operator, union-attr]
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    for name, tensor in state.model.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor), name
    read.save_pretrained(tmp_path / "theirs")
    other = hf.build(HfModel(config=config, context=16))
    weights.load_initial(other, tmp_path / "theirs", SoloGroup())
    assert all(torch.equal(other.state_dict()[name], tensor) for name, tensor in state.model.state_dict().items())


def test_a_damaged_checkpoint_is_not_exported_and_nothing_is_left(tmp_path: Path) -> None:
    found, _ = checkpoint_of(tmp_path / "source", "single", seed=1)
    data = next(found.glob("__0_*"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    with pytest.raises(CheckpointCorruptError, match="do not match"):
        export.export(found, tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_a_folder_that_is_there_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(WeightsExistError, match="out is there already; give a folder that does not exist yet"):
        export.export(tmp_path, tmp_path / "out")


def wrong(change: str, tensors: dict[str, torch.Tensor]) -> None:
    match change:
        case "missing":
            del tensors["norm.weight"]
        case "misshapen":
            tensors["norm.weight"] = torch.ones(3)
        case "more":
            tensors["norm.bias"] = torch.ones(16)


@pytest.mark.parametrize("plan", ["single", "fsdp on 2"])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("missing", "norm.weight is missing there"),
        ("misshapen", "norm.weight has shape [3] there and [16] in the model"),
        ("more", "norm.bias is there and not in the model"),
    ],
)
def test_weights_of_another_model_are_refused_by_the_first_name_that_differs(tmp_path: Path, plan: str, change: str, problem: str) -> None:
    found, _ = checkpoint_of(tmp_path / "source", "single", seed=1)
    path = Path(export.export(found, tmp_path / "out").folder) / "model.safetensors"
    tensors = load_file(path)
    wrong(change, tensors)
    save_file(tensors, path)
    for refusal in run_ranks(refused, PLANS[plan][0], plan, str(path), str(tmp_path)):
        assert problem in refusal
        assert "give those of the same model" in refusal


def refused(world: RankPlace, plan: str, source: str, folder: str) -> str:
    try:
        saved(world, plan, 1, source, folder)
    except InvalidInputError as error:
        return str(error)
    return "they were taken"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "is no file of safetensors, and no folder with"),
        ({"model.safetensors": b"torn"}, "cannot be read as safetensors"),
        ({"model.safetensors.index.json": b"[]"}, "is no index of safetensors"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "gone.safetensors"}}'}, r"gone\.safetensors cannot be read"),
    ],
)
def test_a_folder_without_readable_weights_is_refused(tmp_path: Path, files: dict[str, bytes], problem: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=problem):
        weights.find_weights(tmp_path)


def first_loss_with(folder: Path, cache: Path) -> float:
    """Of one process whose model simply gets what safetensors itself reads."""
    spec = JobSpec.model_validate(tiny_gpt(dropout=0.0) | {"parallelism": {"strategy": "single"}, "reproducible": False})
    state = new_state(spec, torch.device("cpu"), cache)
    state.model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    step_runner = LocalStepRunner(
        spec, state, SoloGroup(), SingleProcess(state.model), Coordinates(), assign_evenly(derived.micro_batches(spec), 1)
    )
    return step_runner.run(NothingAsked()).loss


def test_a_job_starts_with_the_weights_that_another_ended_with(make_job: MakeJob, tmp_path: Path) -> None:
    first = make_job(tiny_gpt(steps=40, dropout=0.0), "first")
    (end,) = first.run(1)
    path = export.export(Path(first.newest_first()[0]), tmp_path / "out").folder
    begun = make_job(tiny_gpt(2, steps=2, dropout=0.0) | {"initial_weights": path}, "second").run(2)
    assert [each.exit_code for each in begun] == [0, 0], begun[0].output
    assert f"starts with the weights in {path}" in begun[0].output
    assert begun[0].curve("loss")[1] == pytest.approx(first_loss_with(tmp_path / "out", tmp_path), rel=1e-5)
    assert end.curve("loss")[1] == pytest.approx(math.log(256), abs=0.3), "it had learnt nothing yet"
    assert begun[0].curve("loss")[1] < end.curve("loss")[1] - 1
    (tmp_path / "out" / "model.safetensors").unlink()
    (refusal,) = make_job(tiny_gpt(steps=2) | {"initial_weights": path}, "third").run(1)
    assert refusal.result is not None
    assert refusal.result.failure is not None
    assert refusal.result.failure.kind == "invalid_input"
    assert "'paceline export' makes one" in refusal.result.failure.message


def test_a_rank_that_joins_before_the_first_step_has_them_too(make_job: MakeJob, tmp_path: Path) -> None:
    """At step 0 nothing is transferred, since all are built alike."""
    source = make_job(faulty_job(tmp_path / "source", nodes=1, steps=8), "source")
    source.run(1)
    path = export.export(Path(source.newest_first()[0]), tmp_path / "out").folder
    struck = faulty_job(tmp_path / "code", Fault(rank=1, step=1, moment="data"), initial_weights=path)
    gang = make_job(struck, "struck").start(2)
    gang.agent.until(1, 0, Broken)
    gang.close_up(0, newcomers=1)
    gang.wait()
    well = make_job(faulty_job(tmp_path / "well", initial_weights=path), "well").run(2)[0]
    assert well.curve("loss")[1] != source_loss(make_job, tmp_path), "the weights were not taken"
    assert gang.left(2, 0).curve("loss") == well.curve("loss")  # to the last bit


def source_loss(make_job: MakeJob, tmp_path: Path) -> float:
    """Of step 1, from the numbers that the seed gives."""
    (end,) = make_job(faulty_job(tmp_path / "seeded", nodes=1, steps=1), "seeded").run(1)
    return float(end.curve("loss")[1])
