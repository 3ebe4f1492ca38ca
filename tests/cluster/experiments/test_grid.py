"""An experiment spec becomes its trials, or is refused with the field at fault."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.cluster.experiments.cells import given
from paceline.cluster.experiments.errors import ExperimentRefusedError
from paceline.cluster.experiments.grid import TrialGrid, expand
from paceline.training.spec.job import JobSpec
from tests.cluster.experiments.specs import experiment, job


def values_of(grid: TrialGrid) -> list[dict[str, Any]]:
    return [dict(cell.values) for cell in grid.cells]


def refusal(**changes: Any) -> tuple[str, str]:
    """(where, what) of the first refusal of a spec as a whole."""
    with pytest.raises(ExperimentRefusedError) as error:
        expand(experiment(**changes))
    first = error.value.refusals[0]
    assert pickle.loads(pickle.dumps(error.value)).refusals == error.value.refusals, "a worker process can raise it"
    return ".".join(first.place), first.message


def test_all_combinations_are_tried_and_the_last_axis_varies_fastest() -> None:
    grid = expand(experiment(grid={"optimizer.lr": [0.1, 0.01], "training.steps": [5, 10]}))
    assert grid.axes == ("optimizer.lr", "training.steps")
    assert [tuple(values.values()) for values in values_of(grid)] == [(0.1, 5), (0.1, 10), (0.01, 5), (0.01, 10)]
    assert [cell.document["training"]["steps"] for cell in grid.cells] == [5, 10, 5, 10]


def test_zipped_columns_of_different_lengths_are_refused_with_the_length_of_each() -> None:
    with pytest.raises(ValidationError, match=r"equally long: optimizer\.lr has 2 values, training\.seed has 1 value"):
        experiment(zip=[{"optimizer.lr": [1, 2], "training.seed": [1]}])


def test_zipped_columns_change_together_and_are_one_axis() -> None:
    columns = {"training.global_batch_size": [8, 16], "optimizer.lr": [0.1, 0.2]}
    grid = expand(experiment(zip=[columns], grid={"precision": ["fp32", "bf16"]}))
    assert [tuple(values.values()) for values in values_of(grid)] == [
        ("fp32", 8, 0.1),
        ("fp32", 16, 0.2),
        ("bf16", 8, 0.1),
        ("bf16", 16, 0.2),
    ]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ({"first": 1, "last": 10, "count": 4}, [1, 4, 7, 10]),
        ({"first": 0.001, "last": 0.1, "count": 3, "scale": "log"}, [0.001, 0.01, 0.1]),
        ({"first": 3, "last": 1, "count": 2}, [3, 1]),
    ],
)
def test_a_range_has_both_ends_and_no_rounding_noise(axis: dict[str, Any], expected: list[float]) -> None:
    assert [values["optimizer.lr"] for values in values_of(expand(experiment(grid={"optimizer.lr": axis})))] == expected


def test_world_sizes_set_the_slots_and_one_rank_is_a_single_process() -> None:
    grid = expand(experiment(job=job(resources={"nodes": 2, "slots_per_node": 2, "device": "cpu"}), world_sizes=[1, 2]))
    assert grid.axes == ("world_size",)
    assert [cell.document["resources"] for cell in grid.cells] == [{"device": "cpu", "slots": 1}, {"device": "cpu", "slots": 2}]
    assert [cell.document.get("parallelism") for cell in grid.cells] == [{"strategy": "single"}, None]
    assert [(cell.world_size, cell.values["world_size"]) for cell in grid.cells] == [(1, 1), (2, 2)]


def test_strategies_share_their_single_process() -> None:
    grid = expand(experiment(grid={"parallelism.strategy": ["ddp", "fsdp"]}, world_sizes=[1, 2]))
    assert [(cell.values["parallelism.strategy"], cell.world_size) for cell in grid.cells] == [("single", 1), ("ddp", 2), ("fsdp", 2)]


def test_a_whole_plan_can_be_an_axis_and_one_that_does_not_divide_is_a_refused_row() -> None:
    plans = [{"strategy": "ddp"}, {"strategy": "fsdp", "shard": 2}]
    cells = expand(experiment(grid={"parallelism": plans}, world_sizes=[3])).cells
    assert [cell.refusal is None for cell in cells] == [True, False]
    assert "shard=2 does not divide world size 3" in str(cells[1].refusal)


def test_weak_scaling_multiplies_the_batch_by_the_ranks() -> None:
    cells = expand(experiment(scaling="weak", world_sizes=[1, 4], grid={"training.global_batch_size": [8, 16]})).cells
    assert [(cell.values["training.global_batch_size"], cell.document["training"]["global_batch_size"]) for cell in cells] == [
        (8, 8),
        (8, 32),
        (16, 16),
        (16, 64),
    ]


def test_a_baseline_is_added_once_for_each_combination_of_the_other_values() -> None:
    axes = {"parallelism.strategy": ["ddp", "fsdp"], "optimizer.lr": [0.1, 0.2]}
    cells = expand(experiment(job=job(resources={"slots": 2}), grid=axes, baseline=True)).cells
    added = [cell for cell in cells if cell.baseline]
    assert [(cell.world_size, cell.values["optimizer.lr"]) for cell in added] == [(1, 0.1), (1, 0.2)]
    assert len(cells) == 6


def test_ways_to_send_share_the_single_process_that_sends_nothing() -> None:
    axes = {"communication.compression": ["none", "bf16", "top_k"]}
    asked = job(communication={"dense_steps": 5, "algorithm": "hierarchical"})
    cells = expand(experiment(job=asked, grid=axes, world_sizes=[2], baseline=True)).cells
    assert [cell.world_size for cell in cells] == [1, 2, 2, 2]
    assert all(cell.refusal is None for cell in cells[:1])
    assert "communication" not in cells[0].document
    assert [cell.values.get("communication.compression") for cell in cells] == [None, "none", "bf16", "top_k"]
    assert len(expand(experiment(job=asked, grid=axes, world_sizes=[1, 2])).cells) == 4


def test_a_baseline_that_is_in_the_grid_anyway_is_not_run_twice() -> None:
    assert len(expand(experiment(world_sizes=[1, 2], baseline=True)).cells) == 2


def test_repeats_lie_side_by_side_and_vary_their_seed_where_asked() -> None:
    cells = expand(
        experiment(grid={"optimizer.lr": [0.1, 0.2]}, repeats=2, vary_seed=True, job=job(training={"steps": 5, "seed": 7}))
    ).cells
    assert [(cell.index, cell.repeat, cell.document["training"]["seed"]) for cell in cells] == [(0, 0, 7), (1, 1, 8), (2, 0, 7), (3, 1, 8)]


def test_the_key_is_of_the_work_whatever_it_is_called_and_however_it_is_written() -> None:
    one = expand(experiment(grid={"optimizer.lr": [1]})).cells[0]
    written = job(optimizer={"kind": "adamw", "lr": 1.0}, priority=90, description="the same")
    other = expand(experiment(name="another", project="p", labels={"team": "a"}, job=written)).cells[0]
    assert one.key == other.key
    assert expand(experiment(grid={"optimizer.lr": [2]})).cells[0].key != one.key
    assert len({cell.key for cell in expand(experiment(repeats=3)).cells}) == 3, "a repeat is work of its own"


def test_a_key_has_no_field_of_the_schema_that_the_job_leaves_as_it_is() -> None:
    document = given(JobSpec.model_validate({"name": "a", **job(parallelism={"strategy": "ddp"}, communication={"ratio": 0.01})}))
    assert not {"communication", "parallelism", "checkpoint", "fault_tolerance", "environment", "precision"} & document.keys()


def test_kinds_of_equal_fields_have_keys_of_their_own() -> None:
    keys = {
        expand(experiment(job=job(optimizer={"kind": kind, "lr": 0.25}, schedule={"kind": schedule}))).cells[0].key
        for kind in ("adamw", "sgd", "nadam", "rmsprop")
        for schedule in ("constant", "cosine")
    }
    assert len(keys) == 8


def test_jobs_have_the_name_the_project_and_the_labels_of_the_experiment() -> None:
    cell = expand(experiment(name="x" * 63, project="p", labels={"team": "a"}, repeats=11)).cells[10]
    assert (cell.document["name"], cell.document["project"]) == ("x" * 60 + "-10", "p")
    assert cell.document["labels"] == {"team": "a", "experiment": "x" * 63, "trial": "10"}


def test_a_value_that_a_submission_would_refuse_is_a_row_with_the_same_words() -> None:
    cells = expand(experiment(grid={"optimizer.lr": [0.1, -1]})).cells
    assert [cell.refusal for cell in cells] == [None, "optimizer.lr must be more than 0; got -1"]


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"grid": {"optimizer.lrr": [1, 2]}}, "grid.optimizer.lrr", "`lrr` is not a field of optimizer (kind adamw); did you mean `lr`?"),
        ({"grid": {"optimzer.lr": [1, 2]}}, "grid.optimzer.lr", "`optimzer` is not a field of a job spec; did you mean `optimizer`?"),
        (
            {"grid": {"optimizer.lr.x": [1]}, "job": job(optimizer={"kind": "sgd", "lr": 1})},
            "grid.optimizer.lr.x",
            "'x' lies under 1, which has",
        ),
        (
            {"job": job(training={"steps": -1}), "grid": {"optimizer.lr": [1, 2]}},
            "job.training.steps",
            "training.steps must be 1 or more; got -1",
        ),
        ({"zip": [{"optimizer.lr": [-1, -2]}]}, "zip.0.optimizer.lr", "optimizer.lr must be more than 0; got -1"),
        ({"scaling": "weak"}, "scaling", "weak scaling is along world_sizes, and there are none"),
        ({"scaling": "weak", "world_sizes": [1], "job": {"script": {"path": "a.py"}}}, "scaling", "weak scaling multiplies training"),
        (
            {"grid": {"training.seed": {"first": 0, "last": 999, "count": 1000}}, "repeats": 6},
            "grid",
            "this comes to 6,000 trials; the limit is",
        ),
        (
            {"grid": {"name": ["one", "two"]}},
            "grid.name",
            "name changes nothing that a trial computes, so its values would be one and the same",
        ),
        ({"zip": [{"labels.team": ["a"], "optimizer.lr": [1]}]}, "zip.0.labels.team", "labels.team changes nothing that a trial computes"),
        ({"grid": {"environment.variables": [{"A": "\0"}]}}, "grid.environment.variables.0.A", "there is a NUL or half a character"),
        ({"job": job(optimizer={"lr": float("nan")})}, "job.optimizer.lr", "nan is no finite number; write one"),
        (
            {"search": {"trials": 2, "parameters": {"optimizer.lr": [1]}}, "world_sizes": [2]},
            "world_sizes",
            "search draws values in place of",
        ),
        ({"search": {"trials": 2, "parameters": {"optimizer.x": [1]}}}, "search.parameters.optimizer.x", "`x` is not a field of optimizer"),
    ],
)
def test_what_no_configuration_can_make_right_refuses_the_whole(changes: dict[str, Any], place: str, message: str) -> None:
    where, what = refusal(**changes)
    assert where == place
    assert what.startswith(message)


def test_an_incomplete_base_is_completed_by_its_axes() -> None:
    base = {name: part for name, part in job().items() if name != "data"}
    assert expand(experiment(job=base, grid={"data": [{"kind": "digits"}]})).cells[0].refusal is None


def test_values_that_do_not_go_together_are_refused_there_alone() -> None:
    models = [{"kind": "mlp"}, {"kind": "gpt"}]
    cells = expand(experiment(grid={"model": models})).cells
    assert [cell.refusal is None for cell in cells] == [True, False]


def test_a_search_has_no_trials_before_they_are_drawn() -> None:
    grid = expand(experiment(search={"trials": 4, "parameters": {"optimizer.lr": {"low": 0.001, "high": 0.1, "scale": "log"}}}))
    assert (grid.axes, grid.cells) == (("optimizer.lr",), ())


def test_a_number_in_quotes_is_that_number_in_every_table() -> None:
    cells = expand(experiment(grid={"optimizer.lr": ["1e-3", "0.5"]})).cells
    assert [cell.values["optimizer.lr"] for cell in cells] == [0.001, 0.5]
    plain = expand(experiment(grid={"optimizer.lr": [0.001, 0.5]})).cells
    assert [cell.key for cell in cells] == [cell.key for cell in plain]
