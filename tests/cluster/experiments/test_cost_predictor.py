"""The cost model in the hands of an analysis: fitted to an experiment's trials, asked about more ranks, and silent where it cannot know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from paceline.cluster.experiments.analysis.predictions import PREDICTED_RANKS
from paceline.cluster.experiments.analysis.predictor import MeasuredConfiguration
from paceline.cluster.experiments.cost_predictor import (
    CostPredictor,
    FittedCostPredictor,
    evenly,
    over,
    predictor_of,
    with_assumed_network,
)
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.grid import expand
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.parallelism.planning.cost.speeds import Speeds, of_cpu_slots
from paceline.parallelism.planning.machines import Link
from paceline.training.planning.estimates import setup_of

START = of_cpu_slots(["fp32"])
#: The speeds that "measured" the trials.
TRUTH = Speeds({"fp32": 3e10}, replace(START.machines, within=Link(4e8, 1e-3), between=Link(4e8, 1e-3), step_overhead_seconds=5e-3))
PLANS: tuple[Mapping[str, Any], ...] = (
    {"strategy": "single"},
    {"strategy": "ddp"},
    {"strategy": "fsdp"},
    {"strategy": "ddp", "pipeline": 2},
)


def document(parallelism: Mapping[str, Any], batch: int, **changes: Any) -> dict[str, Any]:
    return {
        "name": "trial",
        "resources": {"slots": 1 if parallelism["strategy"] == "single" else 2},
        "parallelism": dict(parallelism),
        "model": {"kind": "gpt", "layers": 4, "heads": 4, "dim": 256, "context": 128},
        "data": {"kind": "stdlib_text"},
        "training": {"steps": 10, "global_batch_size": batch},
        "reproducible": False,
    } | changes


DOCUMENTS = dict(enumerate(document(plan, batch) for plan in PLANS for batch in (16, 64)))


def configuration(trial: int, documents: Mapping[int, Mapping[str, Any]] = DOCUMENTS) -> MeasuredConfiguration:
    job = CostPredictor(documents).job(trial)
    assert job is not None
    seconds = TRUTH.predict(job.shape, setup_of(job.spec)).seconds
    return MeasuredConfiguration(trial, job.spec.world_size, job.spec.parallelism.strategy, seconds)


def fitted(**changes: Any) -> FittedCostPredictor:
    found = replace(CostPredictor(DOCUMENTS), **changes).fit([configuration(trial) for trial in DOCUMENTS])
    assert found is not None
    return found


def test_what_was_measured_is_told_as_it_was_measured() -> None:
    model = fitted()
    for trial in DOCUMENTS:
        measured = configuration(trial)
        step = model.predict(trial, measured.world_size)
        assert step is not None
        assert step.step_seconds == pytest.approx(measured.step_seconds, rel=0.1)
        assert step.samples_per_second == pytest.approx(DOCUMENTS[trial]["training"]["global_batch_size"] / step.step_seconds)
        assert step.peak_memory_bytes is not None
        assert step.peak_memory_bytes > 10_000_000


def test_four_plans_of_one_model_are_told_by_what_they_compute_and_send() -> None:
    """By hand, for the GPT of examples/experiments/scaling_gpt.yaml with products of 80 ms a step, and 250 MB/s between two ranks: each has half
    of the products, or of 9 rounds where 8 micro-batches go through two stages. Replicas send 3.35 MB a step, shards four times as much."""
    model = {"kind": "gpt", "layers": 4, "heads": 4, "dim": 128, "context": 64}
    training = {"steps": 10, "global_batch_size": 16, "micro_batch_size": 2}
    documents = {at: document(plan, 16, model=model, training=training) for at, plan in enumerate(PLANS)}
    by_hand = (0.080, 0.040 + 0.0134, 0.040 + 0.0536, 0.040 * 9 / 8 + 0.0028)
    measured = [replace(configuration(at, documents), step_seconds=seconds) for at, seconds in enumerate(by_hand)]
    found = CostPredictor(documents).fit(measured)
    assert found is not None
    steps = [found.predict(each.trial, each.world_size) for each in measured]
    assert [step.step_seconds for step in steps if step] == pytest.approx(by_hand, rel=0.1)


@pytest.mark.parametrize("trial", [2, 4, 6])
def test_weak_scaling_goes_on_to_a_thousand_ranks_and_says_what_it_assumes(trial: int) -> None:
    model = fitted(scaling="weak")
    steps = [model.predict(trial, ranks) for ranks in PREDICTED_RANKS]
    for ranks, step in zip(PREDICTED_RANKS, steps, strict=True):
        assert step is not None
        assert f"{ranks // 2} machines of 2 ranks like those measured" in step.assumptions
        assert "assumed and not measured" in step.assumptions
        assert "CPU slots, fitted to 8 configurations measured here (4 parameters" in step.assumptions
    seconds = [step.step_seconds for step in steps if step is not None]
    assert seconds == sorted(seconds)  # more ranks have more to say to each other


def test_a_prediction_says_by_which_sums_it_is_made_where_jobs_measure_others() -> None:
    documents = {trial: each | {"communication": {"algorithm": "auto"}} for trial, each in DOCUMENTS.items() if trial in (2, 3)}
    plain = fitted()
    model = replace(plain, predictor=CostPredictor(DOCUMENTS | documents))
    step, fixed = model.predict(2, 4), plain.predict(2, 4)
    assert step is not None
    assert fixed is not None
    assert (
        step.assumptions
        == fixed.assumptions + "; gradients are summed exactly, by the backend, and communication: auto may find a faster way"
    )


def test_strong_scaling_ends_where_the_batch_cannot_be_divided() -> None:
    model = fitted()
    rates = [model.predict(2, ranks) for ranks in (4, 16)]
    assert all(rates)
    assert model.predict(2, 32) is None


def test_a_single_process_is_predicted_for_a_series_of_replicas_but_not_the_other_way_round() -> None:
    model = fitted()
    assert model.predict(2, 1) is not None
    assert model.predict(0, 2) is None


def test_few_trials_and_unknown_devices_and_models_have_no_prediction() -> None:
    assert CostPredictor(DOCUMENTS).fit([configuration(trial) for trial in (0, 1, 2)]) is None
    assert CostPredictor(DOCUMENTS, device="A card of mine").fit([configuration(trial) for trial in DOCUMENTS]) is None
    script = {"name": "s", "script": {"path": "train.py"}}
    documents = {**DOCUMENTS, 8: script, 9: {"no": "job"}}
    assert [CostPredictor(documents).job(trial) for trial in (8, 9, 10)] == [None, None, None]
    assert fitted(documents=documents).predict(8, 2) is None


def test_a_job_is_parsed_once_however_often_it_is_asked_about() -> None:
    predictor = CostPredictor(DOCUMENTS)
    assert predictor.job(2) is predictor.job(2)
    assert predictor.job(99) is predictor.job(99) is None


def test_trials_on_several_machines_show_their_network() -> None:
    model = fitted(machines=dict.fromkeys(DOCUMENTS, 2))
    step = model.predict(2, 8)
    assert step is not None
    assert "8 machines of 1 rank like those measured, the network between them as measured" in step.assumptions


def test_an_assumed_network_is_no_faster_than_the_links_that_were_measured() -> None:
    slow = replace(START, machines=replace(START.machines, within=Link(1e8, 1e-2), between=Link(1e9, 1e-4)))
    assert with_assumed_network(slow).machines.between == Link(1e8, 1e-2)
    assert with_assumed_network(START).machines.between == START.machines.between


def test_ranks_are_spread_evenly() -> None:
    assert over(7, 3) == (3, 2, 2)


def test_an_experiments_grid_has_the_documents_of_its_trials() -> None:
    job = {key: value for key, value in document({"strategy": "ddp"}, 16).items() if key not in ("name", "resources", "parallelism")}
    spec = ExperimentSpec.model_validate(
        {
            "name": "grid",
            "job": job,
            "grid": {"parallelism.strategy": ["ddp", "fsdp"]},
            "world_sizes": [2],
            "baseline": True,
            "scaling": "weak",
        }
    )
    cells = expand(spec).cells
    renumbered = [
        TrialFacts(
            index=10 + cell.index,
            values=cell.values,
            repeat=cell.repeat,
            baseline=cell.baseline,
            state="completed",
            world_size=2,
            strategy="",
            machines=1,
        )
        for cell in cells
    ]
    found = predictor_of(spec, renumbered)
    assert found.documents == {10 + cell.index: cell.document for cell in cells}
    assert (found.scaling, found.machines) == ("weak", {10 + cell.index: 1 for cell in cells})
    stranger = TrialFacts(index=99, values={"x": 1}, repeat=0, baseline=False, state="completed", world_size=2, strategy="ddp")
    assert predictor_of(spec, [stranger]).documents == {}


def test_a_fit_takes_no_more_configurations_than_it_needs() -> None:
    plans: list[Any] = list(range(100))
    assert evenly(plans, 4) == [0, 25, 50, 75]
    assert evenly(plans[:3], 4) == [0, 1, 2]


def test_a_ranks_state_is_counted_without_any_measurement() -> None:
    """AdamW keeps two tensors beside a parameter and its gradient: 16 bytes; over two shards 8. Replicas keep sums of earlier micro-batches apart, where
    there are any."""
    training = {"steps": 10, "global_batch_size": 16, "micro_batch_size": 8}
    documents = {at: document(plan, 16, training=training) for at, plan in enumerate(PLANS)}
    found = [CostPredictor(documents, slot_memory_bytes=8_000_000_000).state(at) for at in documents]
    shape = CostPredictor(documents).job(0)
    assert shape is not None
    assert [each.bytes_per_parameter for each in found[1:] if each] == [16.0, 8.0, 8.0]
    assert {(each.parameters, each.optimizer, each.memory_bytes) for each in found if each} == {
        (shape.shape.parameters, "adamw", 8_000_000_000)
    }


def test_state_is_not_counted_where_memory_is_unknown_or_kept_elsewhere() -> None:
    plain = document({"strategy": "fsdp"}, 16)
    offloaded = document({"strategy": "fsdp", "cpu_offload": True}, 16)
    given = {**plain, "resources": {"slots": 2, "memory_per_slot": "4GiB"}}
    predictor = CostPredictor({0: plain, 1: offloaded, 2: given, 3: {"name": "s", "script": {"path": "train.py"}}})
    assert [predictor.state(trial) for trial in (0, 3, 9)] == [None, None, None]
    assert replace(predictor, slot_memory_bytes=10**9).state(1) is None
    told = predictor.state(2)
    assert told is not None
    assert told.memory_bytes == 4 * 1024**3
