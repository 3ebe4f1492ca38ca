"""Causal language models of transformers in our trainer: reproducible, data parallel, with tied weights and dropout; and what is wrong with one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from paceline.training.builtin import builtin_task
from paceline.training.errors import InvalidInputError
from paceline.training.models.hf import model as hf
from paceline.training.models.hf.config import HfModel
from paceline.training.planning.flops import flops_of
from paceline.training.saving.shards import tensors_of
from paceline.training.schema.data import StdlibText
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state
from paceline.training.task import Dataset
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from tests.training.states import final_state

WITHOUT = "transformers is not installed"
LLAMA = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "attention_dropout": 0.1,
}
GPT2 = {"model_type": "gpt2", "vocab_size": 256, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}  # tied, with dropout


@pytest.fixture
def package() -> None:
    pytest.importorskip("transformers", reason=WITHOUT)


def training(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    length = {"steps": 4, "eval_every_steps": 4, "global_batch_size": 7}
    return tiny_gpt(**length) | {"model": {"kind": "hf", "config": config, "context": 16}} | changes


def build(config: dict[str, Any], context: int = 16) -> torch.nn.Module:
    return hf.build(HfModel(config=config, context=context))


@pytest.fixture
def folder(tmp_path: Path, package: None) -> Path:
    """A trained llama as save_pretrained writes it."""
    torch.manual_seed(3)
    model: Any = build(LLAMA)
    model.save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_one_and_two_ranks_give_the_same_bits(make_job: MakeJob, config: dict[str, Any]) -> None:
    alone, together = make_job(training(config), "alone"), make_job(training(config), "together")
    first, second = alone.run(1)[0], together.run(2)[0]
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    for name in ("loss", "gradient_norm", "eval_loss"):
        assert second.curve(name) == first.curve(name)
    mine, theirs = final_state(alone), final_state(together)
    assert all(torch.equal(theirs[name], tensor) for name, tensor in mine.items())


@pytest.mark.usefixtures("package")
def test_the_fast_mode_is_equal_to_rounding_and_a_sample_is_generated(make_job: MakeJob) -> None:
    spec = training(GPT2, reproducible=False)
    spec["training"]["generate_tokens"] = 8
    first, second = (make_job(spec, f"world{size}").run(size)[0] for size in (1, 2))
    assert second.curve("loss") == pytest.approx(first.curve("loss"), abs=1e-5)
    (sample,) = second.events_of("sample")
    assert sample["text"].startswith("def ")


@pytest.mark.usefixtures("package")
def test_a_tied_embedding_is_saved_once(tmp_path: Path) -> None:
    state = new_state(JobSpec.model_validate(training(GPT2)), torch.device("cpu"), tmp_path)
    saved = tensors_of(state)["model"]
    assert "transformer.wte.weight" in saved
    assert "lm_head.weight" not in saved


def test_a_folder_gives_its_weights_in_fp32_and_the_same_loss(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(3)
    source = build(LLAMA).bfloat16()
    source.save_pretrained(folder)  # type: ignore[operator]
    loaded = hf.build(HfModel(path=str(folder), context=16))
    assert loaded.training
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, source.state_dict()[name].float()), name
    task = builtin_task(HfModel(path=str(folder), context=16), StdlibText(), tmp_path)
    assert isinstance(task.train, Dataset)
    loss, _ = task.loss(task.model, task.train.batch(torch.arange(4), None))
    assert loss.item() == pytest.approx(5.5, abs=0.3)  # about ln 256: it has learnt nothing yet


def test_what_a_folder_s_model_computes_is_counted_on_the_rank(make_job: MakeJob, folder: Path) -> None:
    """As the formula has it, which the coordinator cannot apply to what it does not see."""
    job = training(LLAMA) | {"model": {"kind": "hf", "path": str(folder), "context": 16}}
    (counted,) = set(make_job(job).run(1)[0].curve("flops_per_sample").values())
    formula = flops_of(HfModel(config=LLAMA, context=16), None)
    assert formula is not None
    assert counted == pytest.approx(formula.per_sample, rel=0.05)


def spoil(folder: Path, what: str) -> None:
    from safetensors.torch import load_file, save_file

    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    match what:
        case "missing":
            del tensors["model.norm.weight"]
        case "mismatched":
            tensors["model.norm.weight"] = torch.ones(3)
        case "unexpected":
            tensors["more.weight"] = torch.ones(3)
    save_file(tensors, weights, metadata={"format": "pt"})


@pytest.mark.parametrize("what", ["missing", "mismatched", "unexpected"])
def test_weights_that_do_not_fit_are_refused(folder: Path, what: str) -> None:
    spoil(folder, what)
    with pytest.raises(InvalidInputError, match=rf"the weights do not fit its config.json \({what} .*weight"):
        hf.build(HfModel(path=str(folder), context=16))


def test_a_folder_that_is_torn_or_empty_or_wants_to_run_code_is_refused(folder: Path, tmp_path: Path) -> None:
    def refusal() -> str:
        with pytest.raises(InvalidInputError) as caught:
            hf.build(HfModel(path=str(folder), context=16))
        return str(caught.value)

    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}))
    assert "contains custom code" in refusal()
    (folder / "config.json").write_text(json.dumps(config))
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    assert "not fully covered" in refusal()
    (folder / "model.safetensors").unlink()
    assert "no weights as safetensors" in refusal()
    (folder / "config.json").unlink()
    assert "has no config.json on this node" in refusal()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "lama"}, "Unrecognized model identifier: lama"),
        ({"model_type": "vit"}, "Unrecognized configuration class"),
        (LLAMA | {"hiden_size": 8}, "hiden_size means nothing to llama; write hidden_size, or leave it out"),
        (LLAMA | {"hidden_size": "16"}, "Field 'hidden_size' expected int, got str"),
        (LLAMA | {"num_attention_heads": 3}, "not a multiple of the number of attention heads"),
        (LLAMA | {"max_position_embeddings": 8}, "model.context=16 is longer than the model's max_position_embeddings=8; use 8 or less"),
        (GPT2 | {"n_positions": 8}, "max_position_embeddings=8; use 8 or less"),
    ],
)
def test_a_configuration_that_cannot_be_built_is_the_users_to_mend(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        build(config)


@pytest.mark.usefixtures("package")
def test_a_vocabulary_too_small_for_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="256 different bytes, but the model's vocab_size=100; use 256 or more"):
        builtin_task(HfModel(config=LLAMA | {"vocab_size": 100}, context=16), StdlibText(), tmp_path)


def test_without_the_package_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InvalidInputError, match=r"needs transformers on every node; run `pip install transformers==5\.23\.0` there"):
        build(LLAMA)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give exactly one of config .* and path"),
        ({"config": LLAMA, "path": "/models/llama"}, "give exactly one of config .* and path"),
        ({"path": "models/llama"}, "model.path=models/llama is not an absolute path"),
        ({"config": {"hidden_size": 8}}, "model.config has no model_type"),
    ],
)
def test_a_spec_that_is_none_is_refused_at_submit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        HfModel(**given)
