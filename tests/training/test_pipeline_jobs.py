"""Jobs in stages, as ranks live them: every schedule trains as one process does, and what else a job needs works too."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.training.link import Joined
from tests import parity_table
from tests.gangs import Job, RankEnd
from tests.ranks import RANK_TIMEOUT_SECONDS
from tests.training.claims import assert_time_adds_up
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt, tiny_resnet, write_batches
from tests.training.states import final_state
from tests.waiting import wait_until

STEPS = 20
RELATIVE = 1e-5
#: Gradients of tied weights are added up in another order: now and then a weight is rounded to its neighbour in bf16, 0.4 % away.
BF16_RELATIVE = 5e-3
#: By the number of ranks in a pipeline: as many layers as its stages need.
SCHEDULES: list[dict[str, Any]] = [
    {"pipeline_schedule": "gpipe"},
    {"pipeline_schedule": "1f1b"},
    {"pipeline_schedule": "interleaved_1f1b"},
    {"pipeline_schedule": "zero_bubble"},
    {"pipeline_schedule": "zero_bubble", "stages_per_rank": 2},
    {"pipeline_schedule": "zero_bubble_v"},
]


def named(plan: dict[str, Any]) -> str:
    return "-".join(map(str, plan.values()))


def gpt(layers: int = 6, **changes: Any) -> dict[str, Any]:
    """With dropout, and tied embeddings on the first and the last stage. At a rate of 0.01 some of these runs jump, and rounding with them."""
    document = tiny_gpt(steps=STEPS, eval_every_steps=10, **changes)
    return document | {"model": document["model"] | {"layers": layers}, "optimizer": {"kind": "adamw", "lr": 3e-3}}


def staged(spec: dict[str, Any], ranks: int, pipeline: int | None = None, **plan: Any) -> dict[str, Any]:
    pipeline = pipeline or ranks
    return spec | {"resources": {"nodes": ranks}, "parallelism": spec.get("parallelism", {}) | {"pipeline": pipeline} | plan}


def alone(spec: dict[str, Any]) -> dict[str, Any]:
    return spec | {"resources": {"nodes": 1}, "parallelism": {"strategy": "single"}, "reproducible": False}


def trained(job: Job, ranks: int) -> list[RankEnd]:
    ends = job.run(ranks)
    assert [end.exit_code for end in ends] == [0] * ranks, "\n".join(end.output for end in ends)
    return ends


def require_same(one: tuple[Job, RankEnd], other: tuple[Job, RankEnd], relative: float = RELATIVE, *, statistics: bool = True) -> None:
    """Losses, norms, evaluations, and parameters as the last checkpoint has them, each relative to its largest number. Without `statistics`:
    but what comes of running ones."""
    for name in ("loss", "gradient_norm", "learning_rate", *(("eval_loss",) if statistics else ())):
        expected = one[1].curve(name)
        assert len(expected) >= 1
        assert other[1].curve(name) == pytest.approx(expected, rel=relative), name
    expected_state, found = final_state(one[0]), final_state(other[0])
    assert found.keys() == expected_state.keys()
    for name, tensor in expected_state.items():
        if statistics or not name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            torch.testing.assert_close(found[name], tensor, rtol=relative, atol=relative * float(tensor.abs().max()))


def require_parity(make_job: MakeJob, spec: dict[str, Any], ranks: int, **options: Any) -> list[RankEnd]:
    """`options`: of the plan, and of `require_same`."""
    checks = {name: options.pop(name) for name in ("relative", "statistics") if name in options}
    single, together = make_job(alone(spec), "alone"), make_job(staged(spec, ranks, **options), "together")
    ends = trained(together, ranks)
    before = trained(single, 1)[0]
    require_same((single, before), (together, ends[0]), **checks)
    publish(staged(spec, ranks, **options), checks.get("relative", RELATIVE), (single, before), (together, ends[0]))
    return ends


def publish(document: dict[str, Any], bound: float, one: tuple[Job, RankEnd], other: tuple[Job, RankEnd]) -> None:
    curves = [[list(end.curve(name).values()) for _, end in (one, other)] for name in ("loss", "gradient_norm")]
    losses, norms = (parity_table.largest_difference(expected, found) for expected, found in curves)
    expected, found = final_state(one[0]), final_state(other[0])
    learned = [name for name in expected if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))]
    pairs = ((expected[name].flatten().tolist(), found[name].flatten().tolist()) for name in learned)
    parity_table.add(document, bound, losses, norms, max(parity_table.largest_difference(*pair) for pair in pairs))


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("plan", SCHEDULES, ids=named)
def test_every_schedule_trains_as_one_process(make_job: MakeJob, plan: dict[str, Any], ranks: int) -> None:
    require_parity(make_job, gpt(), ranks, **plan)


@pytest.mark.parametrize("plan", [{"pipeline_schedule": "1f1b"}, {"pipeline_schedule": "zero_bubble_v"}], ids=named)
def test_pipelines_beside_each_other(make_job: MakeJob, plan: dict[str, Any]) -> None:
    """2 x 2; the second replica has a micro-batch less, and the last one has a single sample."""
    require_parity(make_job, gpt(global_batch_size=9), 4, pipeline=2, **plan)


@pytest.mark.parametrize("plan", [{"pipeline_schedule": "1f1b"}, {"pipeline_schedule": "zero_bubble_v"}], ids=named)
def test_gradients_in_the_fixed_tree(make_job: MakeJob, plan: dict[str, Any]) -> None:
    require_parity(make_job, gpt(global_batch_size=9) | {"reproducible": True}, 4, pipeline=2, **plan)


@pytest.mark.parametrize("pipeline", [2, 4])
def test_eight_ranks(make_job: MakeJob, pipeline: int) -> None:
    """4 x 2 and 2 x 4, each with a micro-batch or two."""
    require_parity(make_job, gpt(), 8, pipeline=pipeline, pipeline_schedule="1f1b")


def test_one_micro_batch_is_a_model_split_by_layers(make_job: MakeJob) -> None:
    require_parity(make_job, gpt(micro_batch_size=8), 2)


def test_stages_cut_by_measured_time(make_job: MakeJob) -> None:
    require_parity(make_job, gpt(), 2, stages_by="time")


@pytest.mark.parametrize(
    ("mode", "schedule"), [("full", "1f1b"), ("selective", "interleaved_1f1b"), ("full", "zero_bubble_v"), ("selective", "zero_bubble")]
)
def test_activations_that_are_computed_again(make_job: MakeJob, mode: str, schedule: str) -> None:
    require_parity(make_job, gpt(), 2, pipeline_schedule=schedule, activation_checkpointing=mode)


def test_bf16(make_job: MakeJob) -> None:
    require_parity(make_job, gpt() | {"precision": "bf16"}, 2, relative=BF16_RELATIVE)


def test_a_perceptron_with_workers_that_fetch_ahead(make_job: MakeJob) -> None:
    """Only the first and the last of three ranks fetch at all."""
    length = {"steps": STEPS, "global_batch_size": 24, "micro_batch_size": 5, "eval_every_steps": 10, "data_workers": 2}
    spec = gpt() | {"model": {"kind": "mlp", "hidden": [16, 16, 16], "dropout": 0.1}, "data": {"kind": "digits"}, "training": length}
    ends = require_parity(make_job, spec, 3)
    assert len(ends[0].curve("eval_accuracy")) == 2
    assert [sum(end.curve("data_seconds").values()) > 0 for end in ends] == [True, False, True]


def test_running_statistics(make_job: MakeJob, tmp_path: Path) -> None:
    """One pipeline moves them with each micro-batch, as one process does."""
    write_batches(tmp_path)
    gently = {"kind": "sgd", "lr": 0.02, "nesterov": True}
    document = tiny_resnet(tmp_path) | {"fault_tolerance": {"recovery": "restart"}, "optimizer": gently}
    require_parity(make_job, document, 2)


def test_running_statistics_of_replicas_are_their_mean(make_job: MakeJob, tmp_path: Path) -> None:
    """As under plain data parallelism: equal to one process but for them, and the same on both."""
    write_batches(tmp_path)
    gently = {"kind": "sgd", "lr": 0.02, "nesterov": True}
    document = tiny_resnet(tmp_path) | {"fault_tolerance": {"recovery": "restart"}, "optimizer": gently}
    require_parity(make_job, document, 4, pipeline=2, statistics=False)


SEQUENTIAL = """
import torch
from torch import nn
from paceline.training.task import Task

class Numbers:
    def __len__(self):
        return 64
    def batch(self, indices, generator):
        inputs = torch.stack([torch.sin(indices * factor) for factor in (1.0, 2.0, 3.0)], dim=1)
        return inputs, inputs.prod(dim=1)

def squared_error(model, batch):
    inputs, wanted = batch
    return (model(inputs).squeeze(1) - wanted).square().mean(), {}

def sequential(spec):
    frozen = nn.Linear(3, 8).requires_grad_(False)
    model = nn.Sequential(frozen, nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return Task(model, Numbers(), squared_error, evaluation=Numbers())

def called_twice(model, batch):
    return (model(batch[0]) - model(batch[0])).square().mean(), {}

def penalized(model, batch):
    return squared_error(model, batch)[0] + sum(each.square().sum() for each in model.parameters()), {}

def task_of(loss):
    return Task(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 1)), Numbers(), loss)

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 8), nn.Linear(8, 1)])
    def forward(self, inputs):
        return self.layers[1](torch.tanh(self.layers[0](inputs)))

def opaque(spec):
    return Task(Own(), Numbers(), squared_error)

def twice(spec):
    return task_of(called_twice)

def penalty(spec):
    return task_of(penalized)
"""


def own(folder: Path, function: str) -> dict[str, Any]:
    (folder / "own_task.py").write_text(textwrap.dedent(SEQUENTIAL))
    return {
        "name": "own",
        "entrypoint": f"own_task:{function}",
        "optimizer": {"kind": "adamw", "lr": 1e-2},
        "training": {"steps": STEPS, "global_batch_size": 8, "micro_batch_size": 2, "eval_every_steps": 10},
        "checkpoint": {"every_steps": None},
        "fault_tolerance": {"recovery": "restart"},
        "environment": {"working_directory": str(folder)},
    }


def test_a_user_s_sequential_whose_first_stage_has_nothing_to_learn(make_job: MakeJob, tmp_path: Path) -> None:
    require_parity(make_job, own(tmp_path, "sequential"), 4)


def test_a_user_s_model_that_does_not_say_where_it_may_be_cut_is_told_so(make_job: MakeJob, tmp_path: Path) -> None:
    ends = make_job(staged(own(tmp_path, "opaque"), 2)).run(2)
    failures = [end.result.failure for end in ends if end.result]
    assert [failure.kind for failure in failures if failure] == ["invalid_input"] * 2
    assert failures[0]
    assert "Own is no nn.Sequential" in failures[0].message


@pytest.mark.parametrize(("function", "message"), [("twice", "a second time; in a pipeline"), ("penalty", "asks for the parameters")])
def test_a_loss_that_needs_the_whole_model_is_refused_in_place_of_wrong_numbers(
    make_job: MakeJob, tmp_path: Path, function: str, message: str
) -> None:
    """Both calls gave the outputs of the first one, and a sum over no parameters was 0."""
    ends = make_job(staged(own(tmp_path, function), 2)).run(2)
    failures = [end.result.failure for end in ends if end.result and end.result.failure]
    refused = [failure.message for failure in failures if failure.kind == "invalid_input"]
    assert refused
    assert message in refused[0]


def test_where_the_time_goes_adds_up_and_the_bubble_is_told(make_job: MakeJob) -> None:
    ends = trained(make_job(staged(gpt(), 2)), 2)
    for end in ends:
        assert min(assert_time_adds_up(end).values()) > 0
    bubbles = ends[0].curve("pipeline_bubble")
    assert list(bubbles) == list(range(1, STEPS + 1))
    assert all(0 < bubble < 1 for bubble in bubbles.values())
    assert not ends[1].curve("pipeline_bubble")


def test_a_pipeline_writes_its_sample_text_too(make_job: MakeJob) -> None:
    """Word for word what one process writes, through all stages."""
    spec = gpt(generate_tokens=30)
    single, together = make_job(alone(spec), "alone"), make_job(staged(spec, 2, pipeline_schedule="zero_bubble_v"), "together")
    texts = [event["text"] for job, ranks in ((single, 1), (together, 2)) for event in trained(job, ranks)[0].events_of("sample")]
    assert len(texts) == 2
    assert texts[0] == texts[1]


def test_a_paused_pipeline_goes_on_as_another(make_job: MakeJob) -> None:
    spec = gpt()
    straight = trained(make_job(staged(spec, 2), "straight"), 2)[0]
    job = make_job(staged(spec, 2))
    paused = job.run(2, pause=True)
    job.spec = staged(spec, 4)
    ended = job.resume(4)
    assert [end.result.outcome for end in (*paused, *ended) if end.result] == ["paused"] * 2 + ["completed"] * 4
    for name in ("loss", "gradient_norm", "eval_loss"):
        curve: dict[int, Any] = paused[0].curve(name) | ended[0].curve(name)
        assert curve == pytest.approx(straight.curve(name), rel=RELATIVE)


def test_a_killed_stage_ends_the_others_at_once_and_the_job_restarts_from_its_checkpoint(make_job: MakeJob) -> None:
    """The gloo time-out is half an hour; the test's own is a minute."""
    spec = gpt()
    spec = staged(spec | {"training": spec["training"] | {"steps": 100_000}, "checkpoint": {"every_steps": 5}}, 3)
    job = make_job(spec)
    gang = job.start(3)
    for rank in range(3):
        gang.until(rank, Joined)
    wait_until(lambda: bool(job.newest_first()), "the first checkpoint", seconds=RANK_TIMEOUT_SECONDS)
    gang.kill(1)
    ends = gang.wait()
    failures = [end.result.failure for end in (ends[0], ends[2]) if end.result]
    assert [failure.kind for failure in failures if failure] == ["peer_lost", "peer_lost"]
    again = job.resume(3, pause=True)
    assert [end.result.outcome for end in again if end.result] == ["paused"] * 3
    assert again[0].events_of("checkpoint_restored")[0]["step"] >= 5
