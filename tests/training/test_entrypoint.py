"""What a user's entrypoint may get wrong, each told in words that say what to write instead."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from paceline.training.entrypoint import load_entrypoint, own_optimizer, unfit_model
from paceline.training.errors import InvalidInputError
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Dataset, Task
from paceline.training.warm_start import leave_checkout
from tests.training.conftest import MakeJob

EXAMPLES = Path(__file__).parents[2] / "examples"
BEGINNING = """
import torch
from torch.optim import SGD
from paceline.training.task import Task

class Numbers:
    size = 8
    def __len__(self):
        return self.size
    def batch(self, indices, generator):
        return (indices.float()[:, None],)

def loss(model, batch):
    return model(batch[0]).square().mean(), {}

def linear():
    return torch.nn.Linear(1, 1)

def frozen():
    return linear().requires_grad_(False)

def task(**changes):
    return Task(**({"model": linear(), "train": Numbers(), "loss": loss} | changes))

def nothing():
    pass

class Empty(Numbers):
    size = 0

class NoBatch:
    def __len__(self):
        return 8

class OneArgument(Numbers):
    def batch(self, indices):
        return ()

class Bare(Numbers):
    def batch(self, indices, generator):
        return indices.float()[:, None]

class Short(Numbers):
    def batch(self, indices, generator):
        return (torch.ones(3, 1),)
"""
INDICES = torch.arange(4)


def batch_of(task: Task) -> Batch:
    assert isinstance(task.train, Dataset)
    return task.train.batch(INDICES, None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "my_task", raising=False)
    return tmp_path


def load(folder: Path, body: str, name: str = "make") -> Task:
    (folder / "my_task.py").write_text(BEGINNING + textwrap.dedent(body))
    spec = JobSpec.model_validate(
        {
            "name": "mine",
            "entrypoint": f"my_task:{name}",
            "environment": {"working_directory": str(folder)},
            "training": {"steps": 1, "global_batch_size": 4},
        }
    )
    return load_entrypoint(f"my_task:{name}", spec)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("linear(), Numbers(), loss", r"it returned tuple; return a paceline.Task\(model=..., train=..., loss=...\)"),
        ("None", "it returned NoneType"),
        ("task(model=[1])", "Task.model is of type list; give a torch.nn.Module"),
        ("task(model=frozen())", "nothing to train: no parameter with requires_grad=True; unfreeze at least one"),
        ("task(train=NoBatch())", r"Task.train is of type NoBatch, which has no batch; give an object with __len__\(\) and batch"),
        ("task(train=[1, 2])", "Task.train is of type list, which has no batch"),
        ("task(evaluation=7)", "Task.evaluation is of type int, which has no __len__ and no batch"),
        ("task(train=Empty())", "Task.train is empty: len.. gives 0"),
        ("task(train=OneArgument())", r"Task.train.batch cannot be called as Task.train.batch\(indices, generator\): too many positional"),
        ("task(loss=0.1)", r"Task.loss is of type float; give a function that can be called as Task.loss\(model, batch\)"),
        ("task(loss=lambda model: 0)", "Task.loss cannot be called as"),
        ("task(sample=lambda: '')", r"Task.sample cannot be called as Task.sample\(model, tokens\)"),
        ("task(optimizer=SGD(linear().parameters(), lr=1.0))", "Task.optimizer is an optimizer already; give a function that makes it"),
        ("task(flops_per_sample=0)", "Task.flops_per_sample is 0; give the operations of a sample, forward and backward, or leave it out"),
        ("task(optimizer=nothing)", r"Task.optimizer cannot be called as Task.optimizer\(model\)"),
    ],
)
def test_a_task_that_is_none_is_refused_before_it_trains(folder: Path, returned: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"entrypoint my_task:make: .*{message}"):
        load(folder, f"def make(spec): return {returned}")


def test_sparse_gradients_are_refused_before_they_fail_in_the_first_step() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(2, 2, sparse=True), torch.nn.Linear(2, 1))
    assert next(unfit_model(model)) == (
        "Task.model has an embedding with sparse gradients, 0, which are not summed here; give it sparse=False"
    )
    model[0].requires_grad_(False)
    assert not list(unfit_model(model))


def test_a_buffer_whose_elements_share_memory_is_given_its_own(folder: Path) -> None:
    body = """
    def make(spec):
        model = linear()
        model.register_buffer("factor", torch.tensor(2.0).expand(3))
        return task(model=model)
    """
    factor = load(folder, textwrap.dedent(body)).model.get_buffer("factor")
    factor.copy_(factor.clone())
    assert factor.tolist() == [2.0, 2.0, 2.0]


def test_sparse_buffers_are_left_as_they_are(folder: Path) -> None:
    body = """
    import warnings

    def make(spec):
        model = linear()
        model.register_buffer("by_place", torch.eye(2).to_sparse(), persistent=False)
        with warnings.catch_warnings(action="ignore"):  # it is new in torch
            model.register_buffer("by_row", torch.eye(2).to_sparse_csr(), persistent=False)
        return task(model=model)
    """
    model = load(folder, textwrap.dedent(body)).model
    assert [model.get_buffer(name).layout for name in ("by_place", "by_row")] == [torch.sparse_coo, torch.sparse_csr]


def test_a_function_that_takes_no_spec_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"make cannot be called as make\(spec\): too many positional arguments"):
        load(folder, "def make(): return task()")


def test_a_mistake_inside_the_module_is_not_taken_for_a_missing_function(folder: Path) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        load(folder, "torch.absent\ndef make(spec): return task()")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("Bare()", r"Task.train.batch\(indices, generator\) returned a tensor of shape \(4, 1\); return a tuple of tensors"),
        ("Short()", r"returned a tensor of shape \(3, 1\) for 4 indices; stack the samples on dimension 0"),
    ],
)
def test_a_batch_that_is_none_is_refused(folder: Path, data: str, message: str) -> None:
    task = load(folder, f"def make(spec): return task(train={data})")
    with pytest.raises(InvalidInputError, match=message):
        batch_of(task)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("mean", r"returned a tensor of shape \(\); return \(loss, {}\)"),
        ("(mean.item(), {})", r"returned a tuple of float, dict; return \(loss, {}\)"),
        ("(out, {})", r"returned a loss of shape \(4, 1\); return a scalar, the mean over the batch, such as loss.mean\(\)"),
        ("(mean.detach(), {})", "depends on no trainable parameter"),
        ("(mean, {'accuracy': 0.5})", "returned accuracy=a float beside the loss; give a scalar tensor"),
        ("(mean, {'accuracy': out})", r"returned accuracy=a tensor of shape \(4, 1\) beside the loss"),
    ],
)
def test_a_loss_that_is_none_is_refused(folder: Path, value: str, message: str) -> None:
    task = load(
        folder,
        f"""
        def wrong(model, batch):
            out = model(batch[0])
            mean = out.mean()
            return {value}
        def make(spec): return task(loss=wrong)
        """,
    )
    with pytest.raises(InvalidInputError, match=message):
        task.loss(task.model, batch_of(task))


def test_at_evaluation_a_loss_needs_no_gradient(folder: Path) -> None:
    task = load(folder, "def make(spec): return task()")
    with torch.no_grad():
        loss, _ = task.loss(task.model, batch_of(task))
    assert loss.ndim == 0


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("None", "returned a NoneType; return a torch.optim.Optimizer"),
        ("torch.optim.LBFGS(model.parameters())", "returned LBFGS, which computes the loss many times in a step"),
        ("SGD(linear().parameters(), lr=0.1)", "group 0 has a parameter that is not the model's; take them from the model given"),
        ("SGD(model.parameters(), lr=torch.tensor(0.1))", r"group 0 has lr=tensor\(0.1.*\); give a number, which the schedule scales"),
    ],
)
def test_an_optimizer_that_is_none_is_refused(folder: Path, made: str, message: str) -> None:
    task = load(folder, f"def make(spec): return task(optimizer=lambda model: {made})")
    with pytest.raises(InvalidInputError, match=message):
        own_optimizer(task)


def test_a_job_with_a_wrong_loss_ends_with_those_words(make_job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "my_task.py").write_text(BEGINNING + "def make(spec): return task(loss=lambda model, batch: model(batch[0]).mean())")
    spec: dict[str, Any] = {
        "name": "mine",
        "entrypoint": "my_task:make",
        "environment": {"working_directory": str(tmp_path)},
        "training": {"steps": 1, "global_batch_size": 4, "micro_batch_size": 4},
    }
    (end,) = make_job(spec).run()
    assert end.result is not None
    assert end.result.failure is not None
    assert (end.result.failure.kind, end.exit_code) == ("invalid_input", 1)
    assert "return (loss, {})" in end.result.failure.message
    assert "Traceback" not in end.output


SCALED = """
class Scaled(torch.nn.Module):
    temperature = 2.0
    def __init__(self):
        super().__init__()
        self.layer = linear()
    def encode(self, inputs):
        return self.layer(inputs)
    def forward(self, inputs):
        return self.encode(inputs)

def attribute(model, batch):
    return (model(batch[0]) / model.temperature).square().mean(), {}

def method(model, batch):
    return model.encode(batch[0]).square().mean(), {}

def reads(spec): return task(model=Scaled(), loss=attribute)
def calls(spec): return task(model=Scaled(), loss=method)
"""


def two_plain_replicas(folder: Path, function: str) -> dict[str, Any]:
    (folder / "my_task.py").write_text(BEGINNING + SCALED)
    return {
        "name": "mine",
        "entrypoint": f"my_task:{function}",
        "environment": {"working_directory": str(folder)},
        "training": {"steps": 2, "global_batch_size": 4, "micro_batch_size": 1},
        "resources": {"nodes": 2},
        "reproducible": False,
    }


def test_a_loss_may_read_attributes_of_its_model_also_where_torch_wraps_it(make_job: MakeJob, tmp_path: Path) -> None:
    """'DistributedDataParallel' object has no attribute 'temperature'."""
    ends = make_job(two_plain_replicas(tmp_path, "reads")).run(2)
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output


def test_a_loss_that_computes_past_the_forward_pass_is_refused_before_replicas_drift_apart(make_job: MakeJob, tmp_path: Path) -> None:
    for end in make_job(two_plain_replicas(tmp_path, "calls")).run(2):
        assert end.result is not None
        assert end.result.failure is not None
        assert (end.result.failure.kind, end.exit_code) == ("invalid_input", 1)
        assert "without a call of the model that it is given" in end.result.failure.message


def test_the_example_learns_digits_with_its_own_optimizer_and_a_frozen_layer(make_job: MakeJob) -> None:
    spec = yaml.safe_load((EXAMPLES / "digits_entrypoint.yaml").read_text())
    spec["environment"] = {"working_directory": str(EXAMPLES)}
    spec["training"] |= {"epochs": 2, "eval_every_steps": 1000}
    first, _ = make_job(spec).run(2)
    assert first.exit_code == 0, first.output
    assert first.curve("eval_accuracy").popitem()[1] > 0.8
    assert max(first.curve("learning_rate").values()) == 2e-3


def test_a_folder_with_a_module_of_our_name_is_warned_of_and_blamed_where_an_import_fails(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was an ImportError from our own package, met again in each of three restarts."""
    (folder / "paceline.py").write_text("Net = 1")
    clash = f"{folder}/paceline.py has Paceline's name: an entrypoint imports Paceline's; rename it, or run it as a script"
    with pytest.raises(InvalidInputError) as refusal:
        load(folder, "from paceline import Net\n")
    assert "cannot import name 'Net' from 'paceline'" in str(refusal.value)
    assert str(refusal.value).endswith(clash)
    assert f"WARNING {clash}" in capsys.readouterr().out


def test_an_import_of_paceline_under_its_former_name_leads_to_the_new_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    leave_checkout()  # as every rank does
    with pytest.raises(
        InvalidInputError, match=r"no module 'training' on the node.*as paceline\.training now, and 'from paceline import Task'"
    ):
        load(folder, "from training.task import Task\n")
